"""What the parent knows of a front end, by what comes from it and what becomes of its process."""

import asyncio
import socket
from collections.abc import Mapping
from unittest import mock

import pytest
from grpc_health.v1 import health_pb2

from fakes.serving import make_settings
from translane.v1 import models_pb2 as pb
from translane_server.errors import ModelNotFoundError, SettingsError, UnavailableError
from translane_server.front_ends.keeper import Keeper
from translane_server.front_ends.messages import (
    Answer,
    Change,
    FrontEndSetup,
    Health,
    Ping,
    Pong,
    Question,
    Refusal,
    Stop,
    Stopped,
)
from translane_server.front_ends.model_service import ModelServiceOfAll
from translane_server.replica.messages import Frames, Ready, framed

SERVING = health_pb2.HealthCheckResponse.SERVING


class Host:
    """Has the other end of a front end's socket, in place of a process."""

    pid = -1

    def __init__(self):
        self.launched: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.ended = []

    def launch(self, connection):
        copy = connection.dup()
        self.loop.call_soon_threadsafe(self.launched.put_nowait, copy)

    def end(self, *, at_once):
        self.ended.append(at_once)
        return "ended with exit code 9"

    def close(self):
        """Nothing is kept."""


class Life:
    """A front end that says what the test wants."""

    def __init__(self, connection):
        self.connection = connection
        self.frames = Frames()
        self.messages = []
        connection.setblocking(False)

    async def heard(self, kind):
        """The next message of this kind."""
        while True:
            for message in self.messages:
                if isinstance(message, kind):
                    self.messages.remove(message)
                    return message
            data = await asyncio.get_running_loop().sock_recv(self.connection, 1 << 16)
            assert data
            self.messages += self.frames.feed(data)

    async def say(self, *messages):
        await asyncio.get_running_loop().sock_sendall(self.connection, b"".join(map(framed, messages)))


class Kept:
    """A keeper, and the present life of its front end."""

    def __init__(self, number):
        self.changes: list[Mapping[str, int]] = []
        self.losses: list[int] = []
        setup = FrontEndSetup(number, make_settings(replica_timeout=0), 1)
        self.host = Host()
        self.keeper = Keeper(setup, self.host, self.changed, self.losses.append)
        self.health = asyncio.Event()  # set when the front end has told it
        self.life = None

    def changed(self):
        self.changes.append(self.keeper.health)
        if self.keeper.health:
            self.health.set()

    async def next_life(self):
        self.life = Life(await self.host.launched.get())
        await self.life.heard(FrontEndSetup)
        return self.life

    async def serve(self):
        starting = asyncio.create_task(self.keeper.start())
        life = await self.next_life()
        await life.say(Pong(), Ready(), Health({"": SERVING}))
        await starting
        await self.health.wait()
        return life


@pytest.fixture
async def kept():
    made = []

    def keep(number=0):
        made.append(Kept(number))
        return made[-1]

    yield keep
    for each in made:
        if each.life:
            each.life.connection.close()
        await each.keeper.stop()
        while not each.host.launched.empty():
            each.host.launched.get_nowait().close()


async def test_a_lost_front_end_comes_back_and_is_not_healthy_meanwhile(kept):
    one = kept(3)
    life = await one.serve()
    life.connection.close()
    life = await one.next_life()
    assert one.losses == [3]
    assert one.keeper.health == {}
    assert not one.keeper.translates
    one.health.clear()
    await life.say(Ready(), Health({"": SERVING}))
    await one.health.wait()
    assert one.keeper.translates
    assert one.changes == [{"": SERVING}, {}, {"": SERVING}]


async def test_the_error_that_stops_a_front_end_stops_the_start(kept):
    one = kept()
    starting = asyncio.create_task(one.keeper.start())
    life = await one.next_life()
    await life.say(Pong(), SettingsError("--rows is wrong"))
    with pytest.raises(SettingsError, match="--rows is wrong"):
        await starting


async def test_a_front_end_that_drains_is_not_lost(kept):
    one = kept()
    life = await one.serve()
    one.keeper.let_end()
    one.keeper.send(Stop(2.5))
    assert (await life.heard(Stop)).grace == 2.5
    await life.say(Stopped(drained=True))
    assert await one.keeper.drained
    life.connection.close()
    await one.keeper.stop()
    assert one.losses == []
    assert one.host.ended == [False]


async def test_a_front_end_that_dies_while_it_drains_has_not_drained(kept):
    one = kept()
    life = await one.serve()
    one.keeper.let_end()
    life.connection.close()
    assert not await one.keeper.drained
    assert one.losses == []


async def answering(life, *answers):
    """Let a front end answer questions, and return what it was asked."""
    asked = []
    for answer in answers:
        question = await life.heard(Question)
        asked.append(question.content)
        await life.say(Answer(question.number + 1000, b"to nobody"), Answer(question.number, answer))
    return asked


async def test_a_change_is_made_in_one_front_end_after_the_other(kept):
    both = [kept(number) for number in range(2)]
    lives = [await each.serve() for each in both]
    service = ModelServiceOfAll([each.keeper for each in both])
    answer = pb.ReloadModelResponse(changed=True).SerializeToString(), pb.ReloadModelResponse().SerializeToString()
    reloading = asyncio.create_task(service.ReloadModel(pb.ReloadModelRequest(name="m"), mock.Mock()))
    request = pb.ReloadModelRequest(name="m").SerializeToString()
    assert await answering(lives[0], answer[0]) == [Change("ReloadModel", request)]
    assert await answering(lives[1], answer[1]) == [Change("ReloadModel", request)]
    assert (await reloading).changed


@pytest.mark.parametrize(
    ("refusal", "error", "retry_after"),
    [
        (Refusal(ModelNotFoundError, "no m"), ModelNotFoundError, None),
        (Refusal(UnavailableError, "no m", 3.0), UnavailableError, 3.0),
    ],
)
async def test_the_first_refusal_is_the_answer_and_names_the_front_end(kept, refusal, error, retry_after):
    both = [kept(number) for number in range(2)]
    lives = [await each.serve() for each in both]
    service = ModelServiceOfAll([each.keeper for each in both])
    loading = asyncio.create_task(service.LoadModel(pb.LoadModelRequest(name="m"), mock.Mock()))
    await answering(lives[0], pb.LoadModelResponse().SerializeToString())
    await answering(lives[1], refusal)
    with pytest.raises(error, match="front end 1: no m") as refused:
        await loading
    assert getattr(refused.value, "retry_after", None) == retry_after


async def test_a_change_waits_for_nobody_who_is_lost(kept):
    one = kept()
    life = await one.serve()
    service = ModelServiceOfAll([one.keeper])
    loading = asyncio.create_task(service.LoadModel(pb.LoadModelRequest(name="m"), mock.Mock()))
    await life.heard(Question)
    life.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(UnavailableError, match="front end 0 is starting"):
        await loading
    life.connection.close()


async def test_a_front_end_that_is_not_started_any_more_stops_no_change(kept):
    both = [kept(number) for number in range(2)]
    lives = [await each.serve() for each in both]
    service = ModelServiceOfAll([each.keeper for each in both])
    lives[0].connection.close()
    both[0].keeper.given_up(mock.Mock())
    loading = asyncio.create_task(service.LoadModel(pb.LoadModelRequest(name="m"), mock.Mock()))
    answer = pb.LoadModelResponse(model={"name": "m"})
    await answering(lives[1], answer.SerializeToString())
    assert await loading == answer
    both[1].keeper.given_up(mock.Mock())
    with pytest.raises(UnavailableError, match="starting"):
        await service.LoadModel(pb.LoadModelRequest(name="m"), mock.Mock())


async def test_a_front_end_is_asked_for_a_sign_of_life_while_it_loads(kept):
    one = kept()
    starting = asyncio.create_task(one.keeper.start())
    life = await one.next_life()
    one.keeper._process.ask()
    await life.heard(Ping)
    await life.say(Ready())
    await starting
