//! The head's HTTP side: the API on TCP, the controller's socket, and the clock that publishes
//! the state while it changes.
