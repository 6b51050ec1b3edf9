//! Requests and responses of the HTTP API on the head, in the OpenAI form.
