"""Google's Gemini API, generateContent, as the Developer API (AI Studio) and Vertex AI speak it."""
