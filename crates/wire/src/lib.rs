//! What orchestrator and workers say to each other. No sockets here: bytes in, values out.
