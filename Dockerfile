# The command with XLA's CPU plugin: docker build -t pjrt-hub . && docker run --rm pjrt-hub doctor cpu
FROM python:3.13-slim-trixie AS build
# Whatever compiler this Debian has will do.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m venv /opt/pjrt-hub \
 && /opt/pjrt-hub/bin/pip install --no-cache-dir ".[cpu]"

FROM python:3.13-slim-trixie
COPY --from=build /opt/pjrt-hub /opt/pjrt-hub
# Caches must be their user's alone. To keep what is fetched and compiled, mount a volume there.
RUN useradd --create-home --uid 1000 pjrt \
 && install -d -o pjrt -g pjrt -m 700 /var/cache/pjrt-hub
ENV PATH=/opt/pjrt-hub/bin:$PATH \
    PJRT_HUB_CACHE=/var/cache/pjrt-hub
USER 1000
WORKDIR /work
ENTRYPOINT ["pjrt-hub"]
CMD ["list"]
