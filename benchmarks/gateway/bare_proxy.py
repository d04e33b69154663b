"""The baseline: a reverse proxy with aiohttp on both sides and without a limiter, as most people would write it."""

import asyncio
import sys

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive", "content-encoding"}


async def serve(base_url: str) -> None:
    connector = TCPConnector(limit=0)
    async with ClientSession(connector=connector, auto_decompress=False, timeout=ClientTimeout(total=None)) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            body = await request.read()
            async with session.request(
                request.method, base_url + request.path_qs, headers=headers, data=body
            ) as answer:
                passed = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                if answer.content_length is not None:
                    return web.Response(status=answer.status, headers=passed, body=await answer.read())
                response = web.StreamResponse(status=answer.status, headers=passed)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
