package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// har is what is read of an HTTP Archive 1.2, which browsers and proxies export.
type har struct {
	Log struct {
		Entries []harEntry `json:"entries"`
	} `json:"log"`
}

type harEntry struct {
	Request struct {
		Method string `json:"method"`
		URL    string `json:"url"`
	} `json:"request"`
	Response struct {
		Status      int        `json:"status"`
		HTTPVersion string     `json:"httpVersion"`
		Headers     []harField `json:"headers"`
		Content     struct {
			Text     string `json:"text"`
			Encoding string `json:"encoding"`
		} `json:"content"`
	} `json:"response"`
	Timings struct {
		// Connect is -1 where the connection was there already.
		Connect *float64 `json:"connect"`
	} `json:"timings"`
}

type harField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func isHAR(data []byte) bool {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")))
	return len(data) > 0 && data[0] == '{'
}

// readHAR reads an entry, which counts from 1; 0 is the only one. The method is that
// of the request where it is not "".
func readHAR(data []byte, number int, method string) (*captured, error) {
	var archive har
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), &archive); err != nil {
		return nil, failed(fmt.Errorf("no HAR file: %s", plain(err.Error())))
	}
	entries := archive.Log.Entries
	switch {
	case len(entries) == 0:
		return nil, failed(fmt.Errorf("the HAR file has no entries"))
	case number == 0 && len(entries) > 1:
		return nil, usage("which entry? Give --entry with one of:\n%s", list(entries))
	case number < 0 || number > len(entries):
		return nil, usage("--entry %d: the HAR file has %d", number, len(entries))
	}
	return entries[max(number, 1)-1].read(method)
}

func list(entries []harEntry) string {
	var b strings.Builder
	for i, e := range entries {
		if i == 30 {
			fmt.Fprintf(&b, "  ... and %d more\n", len(entries)-i)
			break
		}
		fmt.Fprintf(&b, "  %d  %s %s  %d\n", i+1, plain(e.Request.Method), plain(withoutSecrets(e.Request.URL)), e.Response.Status)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// withoutSecrets leaves out what a URL may carry: userinfo, query and fragment.
func withoutSecrets(url string) string {
	if end := strings.IndexAny(url, "?#"); end >= 0 {
		url = url[:end]
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	host, path, slash := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if slash {
		host += "/"
	}
	return scheme + "://" + host + path
}

func (e *harEntry) read(method string) (*captured, error) {
	c := &captured{method: e.Request.Method, url: e.Request.URL}
	c.reused = e.Timings.Connect != nil && *e.Timings.Connect < 0
	status := e.Response.Status
	switch {
	case status == 0: // how browsers write that nothing came back
		c.note("the entry has no response: it is taken for a connection that ended without one")
		return c, nil
	case status < 100 || status > 999:
		return nil, failed(fmt.Errorf("the entry's status is %d", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		c.note("the entry has only an interim response, status %d: it is taken for a connection that ended without one", status)
		return c, nil
	}
	r := &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Header: http.Header{}, Body: http.NoBody, ContentLength: -1,
	}
	r.ProtoMajor, r.ProtoMinor = harVersion(e.Response.HTTPVersion)
	r.Proto = fmt.Sprintf("HTTP/%d.%d", r.ProtoMajor, r.ProtoMinor)
	for _, f := range e.Response.Headers {
		if strings.HasPrefix(f.Name, ":") {
			continue // HTTP/2 writes the status so
		}
		for value := range strings.SplitSeq(f.Value, "\n") { // browsers join what came several times
			r.Header.Add(f.Name, strings.Trim(value, " \t\r"))
		}
	}
	c.response = r
	c.body = []byte(e.Response.Content.Text)
	if e.Response.Content.Encoding == "base64" {
		decoded, err := base64.StdEncoding.DecodeString(e.Response.Content.Text)
		if err != nil {
			return nil, failed(fmt.Errorf("the entry's content is not base64: %s", plain(err.Error())))
		}
		c.body = decoded
	}
	// Browsers write the body decoded, whatever the header says of it.
	r.TransferEncoding = r.Header["Transfer-Encoding"]
	delete(r.Header, "Transfer-Encoding")
	if r.Header.Get("Content-Length") != "" {
		r.ContentLength = int64(len(c.body))
	}
	c.bodiless(cmp.Or(method, c.method))
	c.unzip()
	c.bound()
	return c, nil
}

func harVersion(s string) (major, minor int) {
	switch strings.ToLower(s) {
	case "http/1.0":
		return 1, 0
	case "h2", "http/2", "http/2.0":
		return 2, 0
	case "h3", "http/3", "http/3.0":
		return 3, 0
	}
	return 1, 1
}
