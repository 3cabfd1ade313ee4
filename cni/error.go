package cni

import (
	"errors"
	"fmt"
	"strings"
)

// Error codes of the specification, section 5 ("Error"). Codes below 100 belong to the specification, the others to
// plugins.
const (
	CodeIncompatibleVersion  = 1  // the configuration's cniVersion is not supported
	CodeUnsupportedField     = 2  // msg names the key and the value
	CodeUnknownContainer     = 3  // the container is unknown or gone: no cleanup needed
	CodeInvalidEnvironment   = 4  // a CNI_* variable is missing or invalid
	CodeIOFailure            = 5  // reading the configuration or writing the result failed
	CodeDecodingFailure      = 6  // not JSON, or of the wrong shape
	CodeInvalidNetworkConfig = 7  // a value that validation rejected
	CodeInvalidNetns         = 8  // the plugin's own network namespace; a code of the reference plugins, not of the specification
	CodeTryAgainLater        = 11 // a temporary condition: the runtime should retry
	CodePluginNotAvailable   = 50 // STATUS: ADD would not work
	CodeLimitedConnectivity  = 51 // STATUS: existing containers may lack connectivity too
	CodeGeneric              = 100
)

// Error is the JSON error that a failing plugin prints on standard output.
type Error struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`

	cause error
}

// Errorf returns an error with a code and a formatted message; %w keeps the cause.
func Errorf(code uint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), cause: errors.Unwrap(err)}
}

// WithDetails returns the error with its details set.
func (e *Error) WithDetails(details string) *Error {
	e.Details = details
	return e
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

// Unwrap returns the cause, if the error was created in this process.
func (e *Error) Unwrap() error { return e.cause }

// AsError returns err as a protocol error: the Error in its chain with err's whole message and its own details, or one
// with CodeGeneric.
func AsError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Code: CodeGeneric, Msg: err.Error(), cause: err}
	}
	if err == error(e) {
		return e
	}
	return &Error{Code: e.Code, Msg: strings.Replace(err.Error(), e.Error(), e.Msg, 1), Details: e.Details, cause: err}
}
