"""Choosing among servers: sticky, balanced, and careful with one that failed."""

from __future__ import annotations

from memfly.llm.servers import Servers
from tests.support.calls import Clock


class Health:
    def __init__(self) -> None:
        self.ill: set[str] = set()
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bool:
        self.asked.append(url)
        return url not in self.ill


def pool(count: int = 3) -> tuple[Servers, Health, Clock]:
    health, clock = Health(), Clock()
    return Servers([f"s{i}" for i in range(count)], health, rest_s=2.0, max_rest_s=16.0, clock=clock), health, clock


async def test_conversations_stay_and_are_spread_evenly() -> None:
    servers, health, _ = pool()
    homes = {f"c{i}": (await servers.pick(f"c{i}")).url for i in range(9)}
    assert sorted(homes.values()) == ["s0"] * 3 + ["s1"] * 3 + ["s2"] * 3
    for _ in range(3):
        assert {c: (await servers.pick(c)).url for c in homes} == homes
    assert health.asked == []


async def test_work_outside_a_conversation_goes_to_the_least_busy() -> None:
    servers, _, _ = pool(2)
    first = await servers.pick("")
    first.in_flight += 1
    assert (await servers.pick("")) is not first


async def test_a_failed_server_rests_and_is_checked_before_it_is_used_again() -> None:
    servers, health, clock = pool(2)
    home = await servers.pick("c")
    servers.failed(home)
    assert (await servers.pick("c")) is home  # once may be a closed connection
    servers.failed(home)
    health.ill.add(home.url)
    other = await servers.pick("c")
    assert other is not home
    assert home.conversations == set()
    clock.time += 3
    await servers.pick("d")
    assert health.asked == [home.url]
    assert not any(s is home for s in [await servers.pick("e"), await servers.pick("f")])
    health.ill.clear()
    clock.time += 30
    assert (await servers.pick("g")) is home
    assert home.failures == 0


async def test_rests_grow_and_are_bounded() -> None:
    servers, _, clock = pool(1)
    (server,) = servers.servers
    rests = []
    for _ in range(6):
        servers.failed(server)
        rests.append(server.rest_until - clock.time)
    assert rests == [2.0, 2.0, 4.0, 8.0, 16.0, 16.0]


async def test_with_all_down_one_is_tried_all_the_same() -> None:
    servers, _, _ = pool(2)
    for server in servers.servers * 2:
        servers.failed(server)
    servers.failed(servers.servers[0])
    assert (await servers.pick("c")).url == "s1"
