"""Reads and changes metadata of a GGUF file, for the scripts that make golden files."""

import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    """Walks over the bytes of a file's head."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def number(self, code: str):
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return value

    def string(self) -> str:
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(count)]
        return self.number(SCALARS[kind])


def entries(data: bytes) -> dict:
    """Each key with its value and the range of bytes the value takes, type included."""
    reader = Reader(data)
    if data[:4] != b"GGUF":
        raise ValueError("not a GGUF file")
    reader.at = 8
    _, count = reader.number("Q"), reader.number("Q")
    found = {}
    for _ in range(count):
        key = reader.string()
        start = reader.at
        found[key] = (reader.value(reader.number("I")), start, reader.at)
    return found


def with_string(data: bytes, key: str, text: str) -> bytes:
    """The file with another string under `key`. Only for files without tensors."""
    _, start, end = entries(data)[key]
    raw = text.encode()
    return data[:start] + struct.pack("<IQ", STRING, len(raw)) + raw + data[end:]
