"""Stands for the interpreter in a command: `python forked_python.py SOCKET ARGUMENTS`, forked by process_server.py."""

import json
import os
import signal
import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
request = {"arguments": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
answers = connection.makefile("r")
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(answers.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
