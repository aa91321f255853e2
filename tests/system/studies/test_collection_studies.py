"""Collections on a real server: from two uploads to ranks, and a budget for all studies."""

from typing import Any

from tests.service.running import ASKING_SECONDS, Server, wait_until
from tests.system.studies.test_dataset_studies import SMALL, gestures, upload

BOTH_KINDS: dict[str, Any] = {
    **SMALL,
    "name": "gestures twice",
    "space": {**SMALL["space"], "low_rank.d": 2},
    "budget": {"trials": 2, "epochs": 3},
    "sampler": {"kind": "grid"},
}
"""Each study trains one dense model, and one of low rank."""


def two_uploads(server: Server) -> list[str]:
    content = gestures()
    # A data set of its own: the last series is not in it.
    shorter = content.rpartition(b"\n")[0]
    return [
        upload(server.http, part, name, unequal_lengths="pad")["id"]
        for name, part in (("all.ts", content), ("most.ts", shorter))
    ]


def submitted(server: Server, document: dict[str, Any]) -> dict[str, Any]:
    answer = server.http.post("/v1/collections", json=document)
    assert answer.status_code == 202, answer.text
    return answer.json()


def ended(server: Server, collection: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = server.get(collection["links"]["collection"])
        return found if found["state"] in ("finished", "failed", "cancelled") else None

    return wait_until(
        look,
        what=f"the end of collection {collection['id']}; log {server.log}",
        pause=ASKING_SECONDS,
    )


def test_two_uploads_are_searched_compared_and_kept_over_a_restart(server: Server) -> None:
    document = {**BOTH_KINDS, "task": {"kind": "dataset", "id": two_uploads(server)}}
    collection = ended(server, submitted(server, document))
    assert collection["state"] == "finished", collection
    assert [one["row"] for one in collection["studies"]] == ["all.ts", "most.ts"]
    assert collection["totals"]["complete"] == 4
    ranks = server.get(collection["links"]["ranks"])
    assert ranks["sets"] == ["all.ts", "most.ts"]
    assert ranks["kinds"] == ["rnn dense", "rnn low_rank"]
    assert {one["mean_rank"] for one in ranks["ranked"]} <= {1.0, 1.5, 2.0}
    for one in ranks["ranked"]:
        assert all(cell["test_quality"] is not None for cell in one["cells"])
    for one in server.get(collection["links"]["results"])["sets"]:
        assert one["front"]
        assert one["best"]["outcome"] == "complete"
    assert server.stop() == 0
    server.start()
    assert server.get(collection["links"]["collection"]) == collection
    assert server.get(collection["links"]["ranks"]) == ranks


def test_a_budget_for_all_studies_ends_them_together(server: Server) -> None:
    document = {
        **SMALL,
        "tasks": [{"kind": "digits"}, {"kind": "digits", "layout": "pixels"}],
        "space": {"hidden_size": {"low": 4, "high": 32}, "training.batch_size": 64},
        "budget": {"trials": 1000, "epochs": 1},
        "collection_budget": {"trials": 6},
    }
    collection = ended(server, submitted(server, document))
    assert collection["state"] == "finished"
    assert {one["state_reason"] for one in collection["studies"]} == {
        "budget: collection_budget.trials"
    }
    # On each slot one more may begin in the round that begins the last.
    begun = collection["totals"]["trials"]
    assert 6 <= begun <= 6 + 2 * len(collection["studies"])
