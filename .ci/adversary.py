"""Stands between the prober and the simulator and does on the wire what a simulator cannot: listens for HTTP and for TLS,
passes everything on, and misbehaves as it is told; counts the probes that came by, by their trace ids.

usage: adversary.py HTTP_PORT TLS_PORT UPSTREAM_PORT CERT KEY

Commands come on stdin, one a line: a mode, or `count`, answered on stdout by the number of probes seen so far.
Modes: pass, slow-read (the request is read in sips), trickle (the answer comes byte by byte), garbage, half-open (the
connection is kept and nothing is read or answered any more), cut (closed in the midst of the answer), and for TLS alone
tls-garbage, tls-close, tls-hang (in the midst of the handshake).
"""

import asyncio
import re
import ssl
import sys

TRACE = re.compile(rb"traceparent: 00-([0-9a-f]{32})-", re.IGNORECASE)
# Half-open connections that are kept: each costs a file on either side.
KEPT_MAX = 200

mode = "pass"
seen = set()
kept = []


async def main(http_port, tls_port, upstream, cert, key):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    inner = await asyncio.start_server(lambda r, w: serve(r, w, upstream), "127.0.0.1", 0, ssl=context)
    terminator = inner.sockets[0].getsockname()[1]
    await asyncio.start_server(lambda r, w: serve(r, w, upstream), "127.0.0.1", http_port)
    await asyncio.start_server(lambda r, w: shake(r, w, terminator), "127.0.0.1", tls_port)
    print("ready", flush=True)
    await commands()


async def commands():
    global mode
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode().strip():
        if line == "count":
            print(len(seen), flush=True)
        else:
            mode = line


async def shake(reader, writer, terminator):
    """Before the handshake: fails it, or passes it on to where TLS is spoken."""
    try:
        if mode == "tls-close":
            return
        if mode == "tls-garbage":
            writer.write(b"\x16\x03\x01\x00\x05garbage and more of it" * 20)
            await writer.drain()
            return
        if mode == "tls-hang":
            return await keep(writer)
        await exchange(reader, writer, terminator, plain, plain)
    except OSError:
        pass
    finally:
        drop(writer)


async def serve(reader, writer, upstream):
    try:
        await exchange(reader, writer, upstream, requests, answers)
    except OSError:
        pass
    finally:
        drop(writer)


async def exchange(reader, writer, port, there, back):
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
    tasks = {asyncio.create_task(there(reader, up_writer)), asyncio.create_task(back(up_reader, writer))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        drop(up_writer)


async def plain(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def requests(reader, writer):
    tail = b""
    while data := await reader.read(64 if mode == "slow-read" else 65536):
        # A header may lie across two reads.
        tail = tail[-100:] + data
        seen.update(TRACE.findall(tail))
        if mode == "slow-read":
            await asyncio.sleep(0.01)
        if mode == "half-open":
            return await keep(None)
        writer.write(data)
        await writer.drain()


async def answers(reader, writer):
    while data := await reader.read(65536):
        if mode == "garbage":
            writer.write(bytes(range(256)) * 8)
        elif mode == "trickle":
            for byte in data[:200]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(data[200:])
        elif mode == "cut":
            writer.write(data[: len(data) // 2])
            await writer.drain()
            return
        else:
            writer.write(data)
        await writer.drain()


async def keep(writer):
    """Holds a connection and never touches it again, until there are too many of them."""
    ended = asyncio.Event()
    kept.append(ended)
    if len(kept) > KEPT_MAX:
        kept.pop(0).set()
    try:
        await asyncio.wait_for(ended.wait(), 60)
    except asyncio.TimeoutError:
        pass


def drop(writer):
    if writer is not None:
        writer.transport.abort()


asyncio.run(main(*map(int, sys.argv[1:4]), *sys.argv[4:6]))
