package proxy

import (
	"errors"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// failureKind is the kind under which a failed call is recorded.
func failureKind(err error) registry.FailureKind {
	if failed, ok := errors.AsType[*upstreamError](err); ok {
		return failed.kind
	}
	if _, ok := errors.AsType[*timeoutError](err); ok {
		return registry.FailureTimeout
	}
	if _, ok := errors.AsType[*registry.StoppedError](err); ok {
		return registry.FailureCancelled
	}
	if _, ok := errors.AsType[*dialect.RequestError](err); ok {
		return registry.FailureClientError
	}
	if _, ok := errors.AsType[*upstream.UnavailableError](err); ok {
		return registry.FailureConnection
	}
	if _, ok := errors.AsType[*upstream.PausedError](err); ok {
		return registry.FailureRateLimit
	}
	switch {
	case errors.Is(err, errClientGone):
		return registry.FailureClientDisconnected
	case errors.Is(err, registry.ErrSessionEnded), errors.Is(err, registry.ErrSealed), errors.Is(err, registry.ErrDraining):
		return registry.FailureCancelled
	case errors.Is(err, errNotConfigured):
		return registry.FailureConnection
	}
	if _, ok := errors.AsType[*commitError](err); ok {
		return registry.FailureCommitFailed
	}
	return registry.FailureAborted
}

// outcomeOf is what a request whose call failed counts as.
func outcomeOf(kind registry.FailureKind) metrics.Outcome {
	switch kind {
	case registry.FailureTimeout:
		return metrics.OutcomeUpstreamTimeout
	case registry.FailureRateLimit, registry.FailureClientError:
		return metrics.OutcomeClientError
	case registry.FailureAuth, registry.FailureUpstreamError:
		return metrics.OutcomeUpstreamError
	case registry.FailureUpstreamTruncated:
		return metrics.OutcomeUpstreamTruncated
	case registry.FailureConnection:
		return metrics.OutcomeConnection
	case registry.FailureClientDisconnected:
		return metrics.OutcomeClientDisconnected
	case registry.FailureCancelled:
		return metrics.OutcomeCancelled
	case registry.FailureCommitFailed:
		return metrics.OutcomeCommitFailed
	case registry.FailureAborted:
		return metrics.OutcomeAborted
	}
	return metrics.OutcomeOther
}
