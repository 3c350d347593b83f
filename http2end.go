package fedhttp

import (
	"errors"
	"strings"
)

// http2End is how a request on an HTTP/2 connection of its own ended, where that says
// something of its delivery.
type http2End uint8

const (
	http2Other    http2End = iota
	http2Unsent            // the connection took no more requests, and so not this one
	http2Reset             // the stream was reset
	http2TooLarge          // the header is larger than the peer takes, and so was not sent
	http2Refused           // the peer says that it has not processed it: RFC 9113, sections 6.8 and 8.7
)

// http2Ends has the errors of net/http that have no type, by their texts: a version
// that changes one is found by a test, and until then makes it http2Other.
var http2Ends = map[string]http2End{
	"http2: client conn not usable":                                  http2Unsent,
	"http2: client conn could not be established":                    http2Unsent,
	"http2: request header list larger than peer's advertised limit": http2TooLarge,
	"http2: Transport received Server's graceful shutdown GOAWAY":    http2Refused,
}

// http2GoAwayError begins the text where a GOAWAY has an error and is below the first
// stream; its code follows.
const http2GoAwayError = "http2: Transport received GOAWAY from server ErrCode:"

// http2StreamError is that of net/http, which becomes any type that looks like it.
type http2StreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (http2StreamError) Error() string { return "HTTP/2 stream error" }

const http2RefusedStream = 7 // RFC 9113, section 7

func http2EndOf(err error) http2End {
	var stream http2StreamError
	switch {
	case !errors.As(err, &stream):
	case stream.Code == http2RefusedStream:
		return http2Refused
	default:
		return http2Reset
	}
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		if end, known := http2Ends[text]; known {
			return end
		}
		if strings.HasPrefix(text, http2GoAwayError) {
			return http2Refused
		}
	}
	return http2Other
}
