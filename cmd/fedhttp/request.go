package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/fedhttp/fedhttp"
)

func (c *call) request(ctx context.Context, method, target string) (*http.Request, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		shown, hint := quote(withoutSecrets(target)), ""
		if strings.Contains(target, "@") { // where a password ends that has a "/" or "#" in it, cannot be told
			shown, hint = "that", " (in a password, special characters are percent-encoded)"
		}
		return nil, usage("%s is no URL; want one such as https://registry.b.example/v1/tasks%s", shown, hint)
	}
	var body io.Reader
	data, given, err := c.body()
	if err != nil {
		return nil, err
	}
	if given {
		body = bytes.NewReader(data)
	}
	if c.task.Capability != "" || len(c.task.Obligations) > 0 || c.task.Scope != "" || c.task.ID != "" {
		ctx = fedhttp.ContextWithTask(ctx, c.task)
	}
	user := u.User
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, failed(err)
	}
	if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	req.Header.Set("User-Agent", "fedhttp/"+strings.Trim(version(), "()"))
	req.Header.Set("Accept", "*/*")
	if given {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, c.setHeaders(req)
}

func (c *call) setHeaders(req *http.Request) error {
	own := map[string]bool{} // those that have replaced a header of ours
	for _, line := range c.headers {
		name, value, ok := strings.Cut(line, ":")
		empty := !ok && strings.HasSuffix(name, ";")
		name = strings.TrimSuffix(name, ";")
		value = strings.Trim(value, " \t")
		if !ok && !empty || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			if ok && httpguts.ValidHeaderFieldName(name) { // the value may be a secret
				return usage("-H %s: the value has control characters; want \"Name: value\"", quote(name))
			}
			name, _, _ = strings.Cut(name, " ")
			return usage("-H %s: want \"Name: value\"", quote(name))
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case key == "Host" && value != "":
			req.Host = value
		case ok && value == "":
			req.Header.Del(key)
			if key == "User-Agent" {
				req.Header.Set(key, "") // which is how net/http is told to send none
			}
		case own[key]:
			req.Header.Add(key, value)
		default:
			req.Header.Set(key, value)
			own[key] = true
		}
	}
	return nil
}

// datum is what one --data or --data-binary says.
type datum struct {
	text   string
	binary bool
}

func (d datum) flag() string {
	if d.binary {
		return "--data-binary"
	}
	return "--data"
}

// dataFlag collects both, in the order in which they are given.
type dataFlag struct {
	all    *[]datum
	binary bool
}

func (f dataFlag) String() string { return "" }
func (f dataFlag) Type() string   { return "string" }

func (f dataFlag) Set(text string) error {
	*f.all = append(*f.all, datum{text, f.binary})
	return nil
}

// body joins the data of all flags, as curl does.
func (c *call) body() (data []byte, given bool, err error) {
	var parts [][]byte
	for _, d := range c.data {
		part := []byte(d.text)
		if path, isFile := strings.CutPrefix(d.text, "@"); isFile {
			if part, err = c.read(path); err != nil {
				return nil, false, flagged(d.flag(), err)
			}
			if !d.binary {
				part = slices.DeleteFunc(part, func(b byte) bool { return b == '\r' || b == '\n' || b == 0 })
			}
		}
		parts = append(parts, part)
	}
	return bytes.Join(parts, []byte("&")), len(parts) > 0, nil
}

func (c *call) read(path string) ([]byte, error) {
	const remedy = "send it through fedhttp proxy, which streams it"
	if path == "-" {
		return readAll(c.std.in, "stdin", maxData, remedy)
	}
	return readPath(path, maxData, remedy)
}
