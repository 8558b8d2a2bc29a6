# The demo, without a network once it is built:
#   docker build -t posir . && docker run --rm posir
FROM python:3.11-slim

# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /posir
COPY . .
# PyTorch for the CPU only.
RUN PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1 make .venv/ready
ENV PATH=/posir/.venv/bin:$PATH
CMD ["make", "demo"]
