# threadkeep serve, from this source tree: docker build -t threadkeep . && docker run --rm -p 127.0.0.1:4010:4010 threadkeep
FROM python:3.13-slim
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt hatchling \
 && pip install --no-cache-dir -c /src/constraints.txt --no-build-isolation "/src[http,postgres,mysql,viewer]" \
 && useradd threadkeep
USER threadkeep
WORKDIR /srv
HEALTHCHECK --interval=5s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:4010/readyz')"]
ENTRYPOINT ["threadkeep"]
CMD ["serve", "--host=0.0.0.0"]
