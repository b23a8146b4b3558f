"""Parts of a large file -> a stored object, once it is whole and its hash is right: the loopback Hub's LFS."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field

from tests.hub.loopback_http import Answer, Call, Refusal, ranged
from tests.hub.loopback_repos import Repository


@dataclass
class Upload:
    """An object that is on its way."""

    repository: Repository
    oid: str
    size: int
    part_size: int | None  # None: it comes as one
    parts: dict[int, bytes] = field(default_factory=dict)
    whole: bytes | None = None


@dataclass
class Storage:
    """The bucket behind the Hub, at an address of its own, as on the real one."""

    address: str
    part_size: int
    uploads: dict[str, Upload] = field(default_factory=dict)
    signature: str = field(default_factory=lambda: secrets.token_hex(8))

    def batch(self, repository: Repository, call: Call, endpoint: str) -> Answer:
        """What the client must send of the objects it names: nothing of those that are stored."""
        said = call.json()
        parts = "multipart" in said.get("transfers", [])
        objects = []
        for given in said["objects"]:
            found = {"oid": given["oid"], "size": given["size"], "authenticated": True}
            if given["oid"] not in repository.objects:
                found["actions"] = self._actions(repository, given["oid"], given["size"], parts, endpoint)
            objects.append(found)
        return Answer(200, {"Content-Type": "application/vnd.git-lfs+json"}, {"objects": objects})

    def _actions(self, repository: Repository, oid: str, size: int, parts: bool, endpoint: str) -> dict[str, object]:
        name = secrets.token_hex(8)
        several = parts and size > self.part_size
        self.uploads[name] = Upload(repository, oid, size, self.part_size if several else None)
        verify = {"href": f"{endpoint}/{repository.prefix}{repository.id}.git/info/lfs/verify", "header": {}}
        if not several:
            return {"upload": {"href": f"{self.address}/upload/{name}"}, "verify": verify}
        numbers = range(1, -(-size // self.part_size) + 1)
        header = {str(number): f"{self.address}/upload/{name}/{number}" for number in numbers}
        header["chunk_size"] = str(self.part_size)
        return {"upload": {"href": f"{endpoint}/api/complete_multipart/{name}", "header": header}, "verify": verify}

    def complete(self, name: str, call: Call) -> Answer:
        """All parts are said to be there: put them together."""
        upload = self.uploads.get(name)
        if upload is None:
            raise Refusal(404, "no such upload")
        said = {part["partNumber"]: part["etag"] for part in call.json()["parts"]}
        held = {number: _etag(content) for number, content in sorted(upload.parts.items())}
        if said != held:
            raise Refusal(400, f"parts {sorted(said)} are named, and {sorted(held)} are there with other tags")
        upload.whole = b"".join(upload.parts[number] for number in sorted(upload.parts))
        return Answer(200, {}, {})

    def verify(self, repository: Repository, call: Call) -> Answer:
        """Keep an object whose content is what its name says; drop what is not."""
        oid, size = call.json()["oid"], call.json()["size"]
        for name, upload in list(self.uploads.items()):
            content = upload.whole if upload.repository is repository and upload.oid == oid else None
            if content is not None and (len(content), hashlib.sha256(content).hexdigest()) == (size, oid):
                repository.objects[oid] = content
                del self.uploads[name]
        if oid not in repository.objects:
            raise Refusal(400, "the object that arrived is not the one that was announced")
        return Answer(200, {}, {})

    def answer(self, call: Call, objects: dict[str, bytes]) -> Answer:
        """What the bucket says to whom was sent here; it takes signed addresses and nothing else."""
        if "Authorization" in call.headers:
            return Answer(400, {}, "Only one auth mechanism allowed")
        if (put := re.fullmatch(r"/upload/(\w+)(?:/(\d+))?", call.path)) and call.method == "PUT":
            return self._put(put[1], int(put[2]) if put[2] else None, call.body)
        if (get := re.fullmatch(r"/object/(\w+)", call.path)) and call.method in ("GET", "HEAD"):
            if call.query.get("signature") != [self.signature]:
                return Answer(403, {}, "AccessDenied")
            return ranged(objects[get[1]], call.headers.get("Range"), {"ETag": f'"{get[1]}"'})
        return Answer(404, {}, "NoSuchKey")

    def _put(self, name: str, number: int | None, content: bytes) -> Answer:
        upload = self.uploads.get(name)
        if upload is None or (number is None) != (upload.part_size is None):
            return Answer(404, {}, "NoSuchUpload")
        if number is None:
            upload.whole = content
        else:
            upload.parts[number] = content
        return Answer(200, {"ETag": _etag(content)})

    def link(self, oid: str) -> str:
        """Where an object can be read for a while without a token."""
        return f"{self.address}/object/{oid}?signature={self.signature}"


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
