# The server and the model that comes with it. DEVICE=cuda takes ONNX Runtime for NVIDIA GPUs in place of the one for
# CPUs, and needs the NVIDIA Container Toolkit where it runs. EXTRAS names what else of the package the image has.
FROM python:3.11-slim-bookworm AS build
ARG DEVICE=cpu
ARG EXTRAS=language-id,otel,s3
WORKDIR /src
COPY constraints.txt constraints-cuda.txt ./
# One environment builds; the other is what the image gets, without pip.
RUN python3 -m venv /build \
 && /build/bin/python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
      pip hatchling cyclonedx-bom \
 && python3 -m venv --without-pip /opt/translane
COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY client client
COPY server server
COPY batch batch
COPY export export
RUN case "$DEVICE" in \
      cpu) extra=server; pins=constraints.txt ;; \
      cuda) extra=server-cuda; pins=constraints-cuda.txt ;; \
      *) echo "DEVICE is cpu or cuda, not '$DEVICE'" >&2; exit 1 ;; \
    esac \
 && /build/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /build/bin/python -m pip --python /opt/translane/bin/python install --no-cache-dir --no-compile -c "$pins" \
      "$(echo /dist/*.whl)[$extra,$EXTRAS]"
COPY models/zh-en models/zh-en
# What no server imports goes: tests, stubs, what converts models, the library of ONNX Runtime for C (Python has one
# of its own), and hf_xet, which downloads checkpoints faster that only PyTorch reads.
RUN cd /opt/translane/lib/python3.*/site-packages \
 && find . -name tests -prune -exec rm -rf {} + \
 && find . \( -name '*.a' -o -name '*.pyi' \) -delete \
 && rm -rf numpy/distutils numpy/f2py onnxruntime/quantization onnxruntime/tools onnxruntime/transformers \
 && if [ "$DEVICE" = cpu ]; then rm onnxruntime/capi/libonnxruntime.so*; fi \
 && /build/bin/python -m pip --python /opt/translane/bin/python uninstall --yes hf-xet
# The last stage has the same Debian packages as this one, so this one can list them.
COPY scripts/write-contents scripts/
RUN mkdir -p /opt/translane/share/translane \
 && /build/bin/python scripts/write-contents /opt/translane/bin/python models/zh-en \
      /opt/translane/share/translane

# Libraries lose what only debuggers read. Those of *.libs are left alone: their makers have moved parts of them. The image
# has the bytecode of what the last command imports; whatever else is imported is compiled then.
FROM build AS stripped
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends binutils >/dev/null \
 && find /opt/translane/lib -name '*.so' -not -path '*.libs/*' -not -path '*/onnxruntime/*' -exec strip --strip-unneeded {} +
RUN ORT_DISABLE_TELEMETRY=1 /opt/translane/bin/python -c "\
import translane_server.app.healthcheck, translane_server.app.lifetime, translane_server.http.port; \
import google.protobuf.json_format, httpx2, huggingface_hub.constants, markdown_it, turbohtml; \
from translane import Translator; \
print(Translator('models/zh-en', device='cpu').translate('A cat.'))"

# The licences are Translane's and that of the model's data, which SPDX has no name for.
FROM python:3.11-slim-bookworm
ARG DEVICE=cpu
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Translane" \
      org.opencontainers.image.description="Continuous-batching translation inference over gRPC on ONNX Runtime ($DEVICE)" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-CC-BY-2.0-FR" \
      org.opencontainers.image.source="https://github.com/translane/translane" \
      io.github.translane.notice="/opt/translane/share/translane/NOTICE" \
      io.github.translane.sbom="/opt/translane/share/translane/sbom.cdx.json" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"
COPY --from=stripped /opt/translane /opt/translane
COPY models/zh-en /models/zh-en
ENV PATH=/opt/translane/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    TRANSLANE_MODEL=/models/zh-en \
    TRANSLANE_HOST=0.0.0.0 \
    TRANSLANE_PORT=50051 \
    TRANSLANE_METRICS_PORT=9400 \
    TRANSLANE_HTTP_PORT=8080 \
    TRANSLANE_HEALTH_PORT=50053 \
    TRANSLANE_LOG_FORMAT=json
USER 10001:10001
EXPOSE 50051 8080 9400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["/opt/translane/bin/python", "-m", "translane_server.app.healthcheck"]
ENTRYPOINT ["/opt/translane/bin/translane", "serve"]
