package fedhttp

import "strings"

// mayBeEnvoy: a local reply is plain text. An answer that an upstream took time for
// is none, and one of an overload or a limit, or after another try, says nothing of
// who had the request.
func mayBeEnvoy(a *reply) bool {
	for _, name := range []string{"X-Envoy-Overloaded", "X-Envoy-Ratelimited", "X-Envoy-Upstream-Service-Time"} {
		if len(a.header[name]) > 0 {
			return false
		}
	}
	return (a.status == 403 || a.status == 503) && !a.triedAgain() &&
		(len(a.header["Content-Type"]) == 0 || a.isMediaType("text/plain"))
}

// triedAgain reports whether an Envoy says that it has sent the request more than
// once. Its reply is about the last try: the first may have been dispatched.
func (a *reply) triedAgain() bool {
	return len(a.header["X-Envoy-Attempt-Count"]) > 0 && a.single("X-Envoy-Attempt-Count") != "1"
}

// readEnvoy reads the local replies of Envoy, whose text is the whole body. One
// that names "retried" is about the last of several tries, and says nothing of the
// others.
func readEnvoy(a *reply) (remark, bool) {
	if a.status == 403 {
		return saysPolicy, a.body == "RBAC: access denied"
	}
	return saysRouting, a.body == "no healthy upstream" || neverConnected(a.body)
}

// neverConnected reports whether the text is Envoy's about a reset, and the reset
// is of a connection that never came about.
func neverConnected(text string) bool {
	why, reset := strings.CutPrefix(text, "upstream connect error or disconnect/reset before headers. reset reason: ")
	reason, more, explained := strings.Cut(why, ", ")
	if !reset || explained && !strings.HasPrefix(more, "transport failure reason: ") {
		return false
	}
	return reason == "connection failure" || reason == "local connection failure" || reason == "remote connection failure"
}

// readLinkerd reads l5d-proxy-error: the proxy's own answer. On 503 it has shed
// the request, on 504 it has waited: neither says who had it.
func readLinkerd(a *reply) (remark, bool) {
	if a.single("L5d-Proxy-Error") == "" {
		return nothing, false
	}
	switch a.status {
	case 403:
		return saysPolicy, true
	case 404:
		return saysRouting, true
	}
	return nothing, false
}

// kongMessages are the errors that Kong makes before it has sent anything.
var kongMessages = map[int]string{
	404: "no Route matched with those values",
	503: "name resolution failed",
}

const kongBalancer = "failure to get a peer from the ring-balancer"

// mayBeKong: an answer with the upstream's latency was sent to the upstream.
func mayBeKong(a *reply) bool {
	return (a.status == 404 || a.status == 503) && len(a.header["X-Kong-Upstream-Latency"]) == 0 && a.isMediaType("application/json")
}

// readKong reads Kong's error message.
func readKong(a *reply) (remark, bool) {
	message := jsonStrings(a.body, "message")["message"]
	return saysRouting, message != "" && (message == kongMessages[a.status] || a.status == 503 && message == kongBalancer)
}

// readAWS reads the type of an API Gateway's own error. A missing authentication
// token is what it says for a route that there is not.
func readAWS(a *reply) (remark, bool) {
	if a.status != 403 {
		return nothing, false
	}
	kind, _, _ := strings.Cut(a.single("X-Amzn-Errortype"), ":")
	switch kind {
	case "MissingAuthenticationTokenException":
		return saysRouting, true
	case "AccessDeniedException":
		return saysPolicy, true
	}
	return nothing, false
}

// readCloudflare reads the statuses that Cloudflare has for an origin that it
// could not reach. 520 and 524 come after the request was sent, and so may 522: of a
// request that the origin does not acknowledge in time, too.
func readCloudflare(a *reply) (remark, bool) {
	switch a.status {
	case 521, 523, 525, 526:
		return saysRouting, len(a.header["Cf-Mitigated"]) == 0
	}
	return nothing, false
}

func mayBeNginx(a *reply) bool { return a.status == 400 && a.isMediaType("text/html") }

// readNginx reads the two pages of nginx's own that say that the server distrusts
// our certificate, or wants one: whatever we refresh, it will again. It is like
// the TLS alert that other servers send.
func readNginx(a *reply) (remark, bool) {
	for _, what := range []string{"The SSL certificate error", "No required SSL certificate was sent"} {
		if strings.HasPrefix(strings.ReplaceAll(a.body, "\r\n", "\n"), "<html>\n<head><title>400 "+what+"</title></head>\n") {
			return saysRouting, true
		}
	}
	return nothing, false
}
