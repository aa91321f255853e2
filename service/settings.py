"""Every setting of the service, read from `REFLECTORY_*` in the environment or given as arguments.

Settings are built by what starts a process (the command line, a test) and passed on; nothing
below the service reads the environment.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.data_home import default_data_dir
from storage.blobs.places import FolderPlace, Place, place_of
from storage.tenant_quota import TenantQuota

_MEBIBYTE = 1 << 20


def _sqlite_in_data_dir(filename: str) -> Any:
    """A default that depends on the data directory, which stands above it in the class."""

    def url(values: dict[str, Any]) -> str:
        return f"sqlite:///{Path(values['data_dir']).absolute() / filename}"

    return url


def _split(value: object) -> object:
    """The words of a list that came as one text, as the environment gives it."""
    if not isinstance(value, str):
        return value
    return tuple(word for part in value.split(",") if (word := part.strip()))


def _host(name: str) -> str:
    if "/" in name or "*" in name or name.rpartition(":")[2].isdecimal():
        raise ValueError(
            f"{name!r} is no name of a host; allowed are names and addresses without a port"
        )
    return name.lower()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise ValueError(
            f"{error}; allowed are addresses and networks such as 10.0.0.7 and 172.16.0.0/12"
        ) from error


Hosts: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_host)], ...], BeforeValidator(_split), NoDecode
]
Networks: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_split), NoDecode
]

ExecutorName = Literal["local", "ray", "inline"]


class QuotaSettings(BaseModel):
    """What each tenant may have for whom `reflectory quota set` set nothing else; null: no limit.

    One person on one machine does not notice these.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    studies: int | None = Field(default=1000, ge=0, description="studies in progress")
    queued_trials: int | None = Field(
        default=10_000, ge=0, description="trials that wait for a slot, in all of its studies"
    )
    slots: int | None = Field(default=None, ge=0, description="slots at once")
    stored_bytes: int | None = Field(
        default=None, ge=0, description="bytes of its artifacts, data sets, models and logs"
    )
    uploads: int | None = Field(default=8, ge=0, description="uploads at once, per API process")
    streams: int | None = Field(
        default=256, ge=0, description="event streams at once, per API process"
    )
    streams_per_key: int | None = Field(default=128, ge=0, description="of these, with one key")
    requests_per_minute: int | None = Field(
        default=30_000, ge=1, description="requests with its keys in a minute, see `counters_file`"
    )

    @property
    def record(self) -> TenantQuota:
        """As the database takes them."""
        return TenantQuota(**self.model_dump())


class Settings(BaseSettings):
    """Where things are kept, who may speak to the server, and how much it takes."""

    model_config = SettingsConfigDict(
        env_prefix="REFLECTORY_",
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        # A URL that is refused may hold a password.
        hide_input_in_errors=True,
    )

    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="folder of everything that the server keeps; made when it is missing",
    )
    database_url: str = Field(
        default_factory=_sqlite_in_data_dir("reflectory.db"),
        description="our tables: a SQLite file in the data directory, or a `postgresql://` URL",
    )
    optuna_url: str = Field(
        default_factory=_sqlite_in_data_dir("optuna.db"),
        description="Optuna's tables: a file of their own in the data directory, or another URL",
    )
    optuna_copy: bool = Field(
        default=True,
        description="whether trials are copied there, for people who load studies with plain "
        "Optuna; a few seconds behind, and never in a trial's way",
    )
    artifacts_dir: Path = Field(
        default_factory=lambda values: Path(values["data_dir"]) / "artifacts",
        description="folder of checkpoints and reports; one for all processes on one database",
    )
    artifacts_url: str | None = Field(
        default=None,
        description="in place of that folder: "
        "`s3://bucket/prefix?endpoint=https://host&region=name` or `file:///folder`; "
        "never with credentials, which stand in `AWS_ACCESS_KEY_ID` and "
        "`AWS_SECRET_ACCESS_KEY`, a profile or a role",
    )
    downloads: Literal["proxied", "redirect"] = Field(
        default="proxied",
        description="how checkpoints and ONNX files leave a bucket: `proxied` through the server, "
        "or by `redirect` to a URL of the bucket, which users then have to reach",
    )
    data_sets: Path | None = Field(
        default=None,
        validation_alias="REFLECTORY_DATA",
        description="folder with data sets that are there already, such as MNIST's four files; "
        "what is not found there is downloaded",
    )
    host: str = Field(
        default="127.0.0.1",
        description="address to listen on; only loopback addresses are taken while no key is valid",
    )
    port: int = Field(
        default=8080, ge=0, le=65535, description="port to listen on; 0 takes a free one"
    )
    hosts: Hosts = Field(
        default=(),
        description="names that a request may have as its `Host`, joined by commas; by default any "
        "where keys guard the server, and else loopback names and the one of REFLECTORY_URL",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="addresses and networks of proxies, joined by commas, whose `X-Forwarded-For` "
        "and `X-Forwarded-Proto` are believed; by default nobody's are",
    )
    url: str | None = Field(
        default=None,
        description="where workers reach the API; by default the address that it listens on",
    )
    secret: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="what webhooks are signed with, at least 32 characters; by default "
        "a file `secret` in the data directory, made once; the same for all servers of a database",
    )
    dashboard_socket: Path | None = Field(
        default=None,
        description="Unix socket between the API and the dashboard's process; "
        "without one `/dashboard` answers 503",
    )
    dashboard_idle_seconds: float = Field(
        default=900.0,
        gt=0,
        description="how long after its last visit the dashboard's process ends, which `serve` "
        "starts at the first one",
    )
    apis: int = Field(
        default=1,
        ge=1,
        le=64,
        description="API processes that `serve` runs, each on a core of its own when there is much "
        "to answer",
    )
    counters_file: Path | None = Field(
        default=None,
        description="file in which the API processes of a machine count requests together; without "
        "one each counts its own; `serve` makes one for its own processes",
    )
    attempts_socket: Path | None = Field(
        default=None,
        description="Unix socket on which the API also listens, for this machine's own agent, "
        "which comes there without a key; `serve` makes `run/api.sock` in the data directory",
    )
    has_own_agent: bool = Field(
        default=False,
        description="whether an agent of its own serves this machine's slots; `serve` has one",
    )
    has_launcher: bool = Field(
        default=False,
        description="whether a process beside the coordinator places agents on the Ray cluster, "
        "which else the coordinator sees to; `serve` has one",
    )
    public_attempts: bool | None = Field(
        default=None,
        description="whether attempts are served at the API's address too, for machines that join; "
        "by default not by `serve` while it listens on loopback and no key exists, unless its "
        "executor is Ray",
    )
    workers: int | None = Field(
        default=None,
        ge=0,
        description="attempts that run side by side on the CPU, with Ray on each node's; by "
        "default one per core; with 0, a worker and Ray's nodes give their GPUs alone, and `serve` "
        "and `coordinator`, which start an agent of this machine otherwise, run nothing on it, not "
        "on its GPUs either",
    )
    executor: ExecutorName = Field(
        default="local",
        description="what runs attempts, beside machines that join: `local`, on this machine; "
        "`ray`, on agents that are placed on a Ray cluster; `inline`, one by one within the "
        "agent's own process, for a debugger",
    )
    ray_address: str = Field(
        default="auto",
        description="the Ray cluster, as `host:port` of its head; `auto`: the one that this "
        "machine is a node of, see deploy/docs/how-to/ray.md",
    )
    ray_scratch: Path = Field(
        default=Path("/tmp/reflectory"),
        description="folder on each Ray node for downloaded data, lock files and agents' own files",
    )
    ray_open: bool = Field(
        default=False,
        description="whether a Ray cluster is used that wants no token, so that whoever reaches it "
        "commands it",
    )
    ray_most_slots: int = Field(
        default=0,
        ge=0,
        description="up to how many slots Ray's autoscaler is asked for, as many as work waits "
        "for; with 0 it is left alone",
    )
    slots_per_gpu: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="attempts that share a GPU, each with an equal part, see `resources.fraction`; "
        "by default one. Set beside `workers` 0, it has a server work with its own GPUs alone",
    )
    slot_memory: ByteSize | None = Field(
        default=None,
        ge=64 * _MEBIBYTE,
        description="memory that one attempt on this machine may take, in bytes or as `4GiB`; what "
        "is predicted to need more is not started; by default the machine's memory, or its control "
        "group's limit, less 1.5 GiB for the service, shared by all slots, at least 512 MiB each",
    )
    containment: Literal["auto", "cgroup", "rlimit", "none"] = Field(
        default="auto",
        description="what keeps an attempt within its slot's memory: `cgroup`, a control group of "
        "its own, which this service needs to be given (`Delegate=yes`); `rlimit`, a limit on its "
        "data segment, on the CPU only; `none`; `auto`: the first, or else the second",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        description="how long an attempt may be silent before it counts as lost",
    )
    slot_wait_seconds: float = Field(
        default=5.0,
        ge=0,
        description="how long a study waits for a slot that serves it, where none does, before it "
        "fails; longer where machines come and go, and with Ray for as long as it takes",
    )
    shutdown_grace_seconds: float = Field(
        default=10.0, gt=0, description="how long open requests may take to end after SIGTERM"
    )
    event_poll_seconds: float = Field(
        default=0.25, gt=0, description="pause between two looks for new events, per API process"
    )
    coordinator_silence_seconds: float = Field(
        default=30.0,
        gt=0,
        description="how long the coordinator may be silent before `/readyz` says that it is away",
    )
    export_wait_seconds: float = Field(
        default=1.0,
        ge=0,
        description="how long a request waits for an ONNX or dense file that is being made, before "
        "it is answered 202 with `Retry-After`",
    )
    login_seconds: int = Field(
        default=7 * 24 * 3600,
        gt=0,
        description="how long a browser that logged in with a key stays so",
    )
    login_idle_seconds: int = Field(
        default=24 * 3600,
        ge=300,
        description="how long it stays so without a request",
    )
    requests_per_minute: int = Field(
        default=6000,
        gt=0,
        description="requests that a key may make in a minute, see `counters_file`; workers make "
        "none",
    )
    refusals_per_minute: int = Field(
        default=30,
        gt=0,
        description="wrong keys that an address may send in a minute, before it has to wait",
    )
    address_requests_per_minute: int = Field(
        default=30_000,
        gt=0,
        description="requests that an address may make in a minute, see `counters_file`, with a "
        "key or without one; what workers say about attempts that they hold does not count",
    )
    header_seconds: float = Field(
        default=15.0, gt=0, description="how long a request's line and headers may take"
    )
    body_idle_seconds: float = Field(
        default=30.0, gt=0, description="longest pause between two pieces of a request's body"
    )
    body_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how long a request's whole body may take, if it is slower than "
        "`REFLECTORY_BODY_BYTES_PER_SECOND`",
    )
    body_bytes_per_second: int = Field(
        default=16 << 10,
        gt=0,
        description="how fast a body has to be, in the mean, that takes longer than that",
    )
    answer_idle_seconds: float = Field(
        default=60.0, gt=0, description="how long a client may take nothing of its answer"
    )
    keep_alive_seconds: int = Field(
        default=5, gt=0, description="how long a connection stays open between two requests"
    )
    connections: int = Field(
        default=2048, gt=0, description="connections that are open at once, per API process"
    )
    connections_per_address: int = Field(
        default=512,
        gt=0,
        description="of these, connections from one address, per API process; proxies that are "
        "trusted count as none",
    )
    requests_at_once: int = Field(
        default=1024,
        gt=0,
        description="requests under way at once, per API process, streams of events included",
    )
    quotas: QuotaSettings = Field(
        default=QuotaSettings(),
        description="what each tenant may have, as a JSON object; what it does not name stays as "
        "it is by default, and null is no limit; see deploy/docs/how-to/quotas.md",
    )
    max_spec_bytes: int = Field(
        default=_MEBIBYTE, ge=1024, description="largest body of a request, uploads excepted"
    )
    max_artifact_bytes: int = Field(
        default=2048 * _MEBIBYTE, ge=1024, description="largest file that a worker may upload"
    )
    disk_reserve: int = Field(
        default=64 * _MEBIBYTE,
        ge=0,
        description="bytes of the artifacts' disk that stay free, so that a database on it can "
        "still write; with less free, nothing is stored and studies wait",
    )
    largest_upload: int = Field(
        default=1024 * _MEBIBYTE,
        ge=1024,
        description="largest upload, in bytes: a data set with all its files, or a model",
    )
    upload_memory: int = Field(
        default=2048 * _MEBIBYTE,
        ge=256 * _MEBIBYTE,
        description="memory that reading an upload may take, in bytes",
    )
    largest_network: int = Field(
        default=512 * _MEBIBYTE,
        ge=1024,
        description="largest ONNX file that is uploaded to be compressed, in bytes",
    )
    network_memory: int = Field(
        default=4096 * _MEBIBYTE,
        ge=512 * _MEBIBYTE,
        description="memory that reading such a file may take, in bytes; about eight times its "
        "size is needed",
    )
    upload_seconds: float = Field(
        default=120.0, gt=0, description="how long reading an upload may take"
    )
    webhook_private: bool = Field(
        default=False,
        description="whether webhooks may go to private, loopback and other addresses that are not "
        "public: whoever submits a study then has this server speak to hosts inside its network",
    )
    log_level: str = Field(
        default="INFO",
        pattern="^(DEBUG|INFO|WARNING|ERROR)$",
        description="how much is logged: DEBUG, INFO, WARNING or ERROR",
    )

    log_format: Literal["text", "json"] = Field(
        default="text",
        description="`text` for people, or `json`: one object per line, attempts' logs included",
    )
    telemetry: bool = Field(
        default=False,
        description="whether requests are traced with OpenTelemetry, see "
        "deploy/docs/how-to/observability.md",
    )
    access_log: bool = Field(
        default=False,
        description="whether each request is a line of the log, with its path but not its query",
    )

    @model_validator(mode="after")
    def _one_place_for_artifacts(self) -> Self:
        if self.artifacts_url is not None:
            place_of(self.artifacts_url)
            if "artifacts_dir" in self.model_fields_set:
                raise ValueError(
                    "artifacts are kept in one place: name REFLECTORY_ARTIFACTS_DIR or "
                    "REFLECTORY_ARTIFACTS_URL, not both"
                )
        if self.downloads == "redirect" and isinstance(self.artifacts_place, FolderPlace):
            raise ValueError(
                "downloads by 'redirect' need artifacts in a bucket (REFLECTORY_ARTIFACTS_URL); "
                "those of a folder are 'proxied'"
            )
        return self

    @property
    def artifacts_place(self) -> Place:
        """Where artifacts are kept."""
        if self.artifacts_url is None:
            return FolderPlace(self.artifacts_dir.absolute())
        return place_of(self.artifacts_url)

    @property
    def cache_dir(self) -> Path:
        """Data sets that were downloaded."""
        return self.data_dir / "cache"

    @property
    def uploads_dir(self) -> Path:
        """Uploads that are not stored yet."""
        return self.data_dir / "uploads"

    @property
    def logs_dir(self) -> Path:
        """One log file per attempt, named by the attempt's id."""
        return self.data_dir / "logs"

    @property
    def coordinator_alive(self) -> Path:
        """The file that the coordinator touches while it works."""
        return self.data_dir / "coordinator.alive"
