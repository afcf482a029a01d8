# docker build -t rtmp-spark .                     inspect, check, report, sql; no Java
# docker build -t rtmp-spark-ingest --target spark .   the same and ingest
# docker run --rm -v "$PWD:/data" rtmp-spark inspect trace.pcap
FROM python:3.12-slim AS base
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY rtmp_spark rtmp_spark
COPY server server
WORKDIR /data

FROM base AS spark
RUN pip install --no-cache-dir '/src[spark,java,lake,tls,zstd]' && rm -rf /src
ENTRYPOINT ["rtmp-spark"]

FROM base AS inspect
RUN pip install --no-cache-dir '/src[lake,tls,zstd,gzip]' && rm -rf /src
ENTRYPOINT ["rtmp-spark"]
