// The page and the API have one address. The proxy keeps the Host header, by which the server knows a local page.
const proxy = { "/api": { target: process.env.THREADKEEP_SERVER ?? "http://127.0.0.1:4010" } };

export default { server: { proxy }, preview: { proxy } };
