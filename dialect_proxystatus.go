package fedhttp

import (
	"strings"

	"github.com/dunglas/httpsfv"
)

// maxProxyStatus bounds, in bytes, the Proxy-Status field that is parsed.
const maxProxyStatus = 8 << 10

// proxyErrors has what the error types of RFC 9209, section 2.3 prove. A type that
// is not here proves nothing, and neither does one that is sent after the request
// was dispatched.
var proxyErrors = map[string]struct {
	layer Layer // LayerUnknown: nothing
	envoy bool  // an Envoy uses it for more than its name says
}{
	"dns_timeout":                {layer: LayerRouting},
	"dns_error":                  {layer: LayerRouting},
	"destination_not_found":      {layer: LayerRouting},
	"destination_unavailable":    {layer: LayerRouting, envoy: true},
	"destination_ip_unroutable":  {layer: LayerRouting},
	"connection_refused":         {layer: LayerRouting},
	"connection_timeout":         {layer: LayerRouting, envoy: true},
	"connection_limit_reached":   {layer: LayerRouting, envoy: true},
	"tls_certificate_error":      {layer: LayerRouting},
	"http_request_denied":        {layer: LayerPolicy},
	"http_request_error":         {},
	"destination_ip_prohibited":  {},
	"proxy_loop_detected":        {},
	"proxy_configuration_error":  {},
	"proxy_internal_error":       {},
	"proxy_internal_response":    {},
	"connection_terminated":      {},
	"connection_read_timeout":    {},
	"connection_write_timeout":   {},
	"tls_protocol_error":         {},
	"tls_alert_received":         {},
	"http_upgrade_failed":        {},
	"http_protocol_error":        {},
	"http_response_incomplete":   {},
	"http_response_timeout":      {},
	"http_response_header_size":  {},
	"http_response_body_size":    {},
	"http_response_trailer_size": {},

	"http_response_header_section_size":  {},
	"http_response_trailer_section_size": {},
	"http_response_transfer_coding":      {},
	"http_response_content_coding":       {},
}

// readProxyStatus reads the whole chain. Its leftmost member is the hop nearest
// the origin, its rightmost the one nearest us.
func readProxyStatus(a *reply, hops []Hop) (words []remark) {
	values := a.header["Proxy-Status"]
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if len(values) == 0 || size > maxProxyStatus {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return nil // RFC 9651, section 4.2: the whole field is ignored
	}
	seen := map[remark]bool{}
	for i, member := range list {
		w, spoke := readProxyMember(member, i == 0, hops)
		if spoke && !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
	}
	return words
}

// readProxyMember reads one member; first is the one with nobody to its left.
func readProxyMember(member httpsfv.Member, first bool, hops []Hop) (remark, bool) {
	item, ok := member.(httpsfv.Item)
	if !ok {
		return nothing, false // a member is an item
	}
	kind, _ := item.Params.Get("error")
	token, ok := kind.(httpsfv.Token)
	if !ok {
		return nothing, false
	}
	proves, known := proxyErrors[string(token)]
	if !known {
		return nothing, false
	}
	hop := hopOf(item.Value, hops)
	w := remark{layer: proves.layer, unpinned: hop == nil}
	if !first && token != "http_request_error" {
		// Only an intermediary makes such an error, and then nothing came from
		// the hop to its left, which says that something did.
		w.layer = LayerUnknown
		return w, true
	}
	if _, heard := item.Params.Get("received-status"); heard {
		return nothing, false // the next hop had the request
	}
	switch {
	case proves.layer == LayerUnknown:
		return nothing, false
	case hop == nil:
		return w, true
	case (proves.layer == LayerPolicy) != hop.Policy:
		// Only a hop that enforces policy has denied anything; and of one that
		// does, nobody knows whether it had decided before it failed.
		return nothing, false
	case proves.envoy && hop.Envoy:
		details, _ := item.Params.Get("details")
		text, _ := details.(string)
		return w, flaggedUnsent(text)
	}
	return w, true
}

// hopOf returns the hop that signs with the identifier, a token or a string.
func hopOf(identifier any, hops []Hop) *Hop {
	var name string
	switch id := identifier.(type) {
	case httpsfv.Token:
		name = string(id)
	case string:
		name = id
	}
	for i := range hops {
		if hops[i].Name == name {
			return &hops[i]
		}
	}
	return nil
}

// flaggedUnsent reports whether the details of an Envoy name a response flag of a
// request that was not dispatched, and none of one that may have been.
func flaggedUnsent(details string) bool {
	never := false
	for flag := range strings.FieldsFuncSeq(details, func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		switch flag {
		case "UF", "UH", "NR", "DF":
			never = true
		case "UT", "LR", "UC", "URX":
			return false
		}
	}
	return never
}
