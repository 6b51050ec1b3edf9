//! Errors in the OpenAI form, for every failure a client can see.
//!
//! Knows statuses and wording; must not know how requests are answered.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use windlass_wire::api::{ErrorBody, ErrorDetail};

use crate::head::handle::SubmitError;

/// Seconds after which an overloaded server may be asked again.
const RETRY_AFTER_S: u32 = 2;

/// A refusal or a failure, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// Status of the response; a stream that has begun cannot send it any more.
    pub status: StatusCode,
    /// The body's inside.
    pub detail: ErrorDetail,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// An error of `status` with a type and a code.
    pub fn new(status: StatusCode, kind: &str, code: Option<&str>, message: String) -> Self {
        Self {
            status,
            detail: ErrorDetail {
                message,
                kind: kind.to_owned(),
                param: None,
                code: code.map(str::to_owned),
            },
            retry_after: None,
        }
    }

    /// 400: the field `param` is at fault.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request(message).param(param)
    }

    /// 400 that is about no single field.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            None,
            message.into(),
        )
    }

    /// 400: the field is known to the OpenAI API and not supported here.
    pub fn unsupported(param: &str) -> Self {
        let mut error = Self::invalid(
            param,
            format!("`{param}` is not supported by this server; leave it out"),
        );
        error.detail.code = Some("unsupported_parameter".to_owned());
        error
    }

    /// 400: the value of `param` is outside its range.
    pub fn range(
        param: impl Into<String>,
        value: impl std::fmt::Display,
        range: impl std::fmt::Display,
    ) -> Self {
        let param = param.into();
        let message = format!("`{param}` is {value}; it must be {range}");
        Self::invalid(param, message)
    }

    /// 400: prompt and answer exceed the context.
    pub fn context(max: u32, prompt: usize, answer: u32, param: &str) -> Self {
        let mut error = Self::invalid(
            param,
            format!(
                "this model's maximum context length is {max} tokens, but {} were requested \
                 ({prompt} in the prompt, {answer} for the answer); shorten one of them",
                prompt.saturating_add(answer as usize)
            ),
        );
        error.detail.code = Some("context_length_exceeded".to_owned());
        error
    }

    /// 404: not the model that is served.
    pub fn unknown_model(asked: &str, served: &str) -> Self {
        let shown: String = asked.chars().take(200).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            Some("model_not_found"),
            format!("the model `{shown}` does not exist; this server serves `{served}`"),
        )
        .param("model")
    }

    /// A sequence could not be completed: 503 while a stage is lost, else 502.
    pub fn failed(message: String, serving: bool) -> Self {
        let (status, code) = if serving {
            (StatusCode::BAD_GATEWAY, "generation_failed")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "deployment_degraded")
        };
        Self::new(status, "server_error", Some(code), message)
    }

    /// 503: the server ends.
    pub fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            Some("stopping"),
            "the server is stopping".to_owned(),
        )
    }

    /// 500: a defect of ours.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "server_error",
            Some("internal"),
            format!("internal error: {message}"),
        )
    }

    /// Names the field at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.detail.param = Some(param.into());
        self
    }

    /// The body.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: self.detail.clone(),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::TooLong { .. } => {
                let mut error = Self::bad_request(message);
                error.detail.code = Some("context_length_exceeded".to_owned());
                error
            }
            SubmitError::Degraded(_) => Self::failed(message, false),
            SubmitError::Overloaded => Self {
                retry_after: Some(RETRY_AFTER_S),
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "server_error",
                    Some("overloaded"),
                    message,
                )
            },
            SubmitError::Stopping => Self::stopping(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
