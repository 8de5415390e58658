"""Choosing among servers: sticky, balanced, and careful with one that failed."""

from __future__ import annotations

import itertools

from memfly.errors import ConfigError
from memfly.llm.servers import Servers
from tests.support.calls import Clock


class Health:
    def __init__(self) -> None:
        self.ill: set[str] = set()
        self.asked: list[str] = []
        self.locked: set[str] = set()

    async def __call__(self, url: str) -> bool:
        self.asked.append(url)
        if url in self.locked:
            raise ConfigError(f"{url} answered 401")
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
    assert (await servers.pick("g")) is home  # its trial
    assert (await servers.pick("h")) is not home
    servers.well(home)
    assert (await servers.pick("i")) is home


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


async def test_a_server_that_only_passes_its_health_checks_gets_ever_fewer_trials() -> None:
    servers, _, clock = pool(2)
    bad = servers.servers[0]
    trials = []
    for number in range(600):
        if (await servers.pick(f"c{number}")) is bad:
            servers.failed(bad)
            trials.append(clock.time)
        clock.time += 0.25
    pauses = [b - a for a, b in itertools.pairwise(trials)]
    assert len(trials) < 16
    assert pauses[-1] >= 16.0  # the longest rest; and it is still tried
    servers.well(bad)
    assert bad.failures == 0


async def test_a_health_check_that_is_refused_speaks_of_its_server_only() -> None:
    servers, health, clock = pool(2)
    home = await servers.pick("c")
    for _ in range(2):
        servers.failed(home)
    health.locked.add(home.url)
    clock.time += 3
    assert (await servers.pick("c")) is not home
    assert health.asked == [home.url]
    assert servers.others(home)
    assert not servers.others(servers.servers[1])
