# Two images: `docker build --target agent .` for GPU hosts, `docker build --target controller .` for the one machine
# that decides. docs/containers.md says how to run them.
# One base, by its digest: docs/containers.md says how to renew it.
ARG BASE=python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
FROM ${BASE} AS source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
# The mark tells gpuwatch that parts are not added by pip here.
RUN python3 -m venv /opt/gpuwatch && touch /opt/gpuwatch/of-an-image
WORKDIR /source
COPY requirements requirements

# Every package at the version and with the hash of its lock, and nothing else: docs/security.md.
FROM source AS wheel
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --require-hashes --requirement requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY packaging/build_hook.py packaging/build_hook.py
COPY gpuwatch gpuwatch
# What `gpuwatch export` and `gpuwatch config init` write.
COPY alerts alerts
COPY dashboards dashboards
COPY deploy/helm deploy/helm
COPY deploy/kustomize deploy/kustomize
COPY docs/examples/starter.yaml docs/examples/starter.yaml
COPY systemd systemd
# The commit, for the metrics `gpuwatch_agent_build_info` and `gpuwatch_controller_build_info`.
ARG REVISION=""
RUN if [ -n "$REVISION" ]; then echo "$REVISION" > gpuwatch/revision.txt; fi \
 && /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

FROM source AS agent-parts
RUN /opt/gpuwatch/bin/pip install --require-hashes --requirement requirements/agent.lock
COPY --from=wheel /wheel /wheel
RUN /opt/gpuwatch/bin/pip install --no-deps --no-index /wheel/*.whl && /opt/gpuwatch/bin/pip uninstall --yes pip setuptools

FROM source AS controller-parts
RUN /opt/gpuwatch/bin/pip install --require-hashes --requirement requirements/controller.lock
COPY --from=wheel /wheel /wheel
RUN /opt/gpuwatch/bin/pip install --no-deps --no-index /wheel/*.whl && /opt/gpuwatch/bin/pip uninstall --yes pip setuptools

# Nothing but /run/gpuwatch and /var/lib/gpuwatch is ever written to: run both with a read-only root file system.
# runc gives a tmpfs the mode of the folder that it covers, whatever the mount asks for: hence 1777.
FROM ${BASE} AS runtime
RUN groupadd --gid 10001 gpuwatch \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/gpuwatch --shell /usr/sbin/nologin gpuwatch \
 && install --directory --owner=10001 --group=10001 /var/lib/gpuwatch \
 && install --directory --mode=1777 /run/gpuwatch
ENV PATH=/opt/gpuwatch/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["gpuwatch"]

FROM runtime AS agent
COPY --from=agent-parts /opt/gpuwatch /opt/gpuwatch
# What the NVIDIA container toolkit puts in: every GPU, and the driver's management library alone.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility MALLOC_ARENA_MAX=1
EXPOSE 9460
HEALTHCHECK --interval=60s --timeout=15s --start-period=60s CMD ["gpuwatch", "doctor", "agent", "--alive"]
CMD ["agent"]

FROM runtime AS controller
COPY --from=controller-parts /opt/gpuwatch /opt/gpuwatch
EXPOSE 9461
VOLUME /var/lib/gpuwatch
HEALTHCHECK --interval=60s --timeout=15s --start-period=60s CMD ["gpuwatch", "doctor", "controller", "--alive"]
CMD ["controller"]
