"""Opens connections to an HTTP surface and holds them: some say nothing, some half a request, some ask and never read.

usage: crowd.py HOST:PORT CONNECTIONS SECONDS (to hold them, once they are open)
Prints how many were opened, and how many scrapes of our own were answered meanwhile.
"""

import resource
import socket
import sys
import time
import urllib.request

address, wanted, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
host, port = address.rsplit(":", 1)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 1000), hard))

held, scrapes, answered = [], 0, 0
# A machine that is busy with other things opens as many as it can in this time.
end = time.monotonic() + 60
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def scrape():
    global scrapes, answered
    scrapes += 1
    try:
        with opener.open(f"http://{address}/metrics", timeout=10) as answer:
            answered += len(answer.read()) > 1000
    except OSError as error:
        print(f"scrape: {error}", file=sys.stderr)


for index in range(wanted):
    try:
        one = socket.create_connection((host, int(port)), timeout=5)
        one.setblocking(False)
        one.send((b"", b"GET /metrics HTTP/1.1\r\nx: ", b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")[index % 3])
        held.append(one)
    except OSError:
        pass
    if index % 1000 == 999:
        scrape()
    if time.monotonic() > end:
        break
end = time.monotonic() + seconds
while time.monotonic() < end:
    scrape()
    time.sleep(0.5)
print(f"crowd: {len(held)} connections, {answered} of {scrapes} scrapes answered", flush=True)
sys.exit(answered != scrapes)
