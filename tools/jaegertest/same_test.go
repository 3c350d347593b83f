package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// differOTLP says where Jaeger's OTLP form of a span is not what was sent.
func differOTLP(got, sent span) (problems []string) {
	complain := func(what string, got, want any) {
		problems = append(problems, fmt.Sprintf("/api/v3/traces: %s: %s is %v, want %v", title(sent), what, got, want))
	}
	if got.Name() != sent.Name() {
		complain("the name", got.Name(), sent.Name())
	}
	if got.Kind() != sent.Kind() {
		complain("the kind", got.Kind(), sent.Kind())
	}
	if got.ParentSpanID() != sent.ParentSpanID() {
		complain("the parent", got.ParentSpanID(), sent.ParentSpanID())
	}
	if g, s := got.Status(), sent.Status(); g.Code() != s.Code() || g.Message() != s.Message() {
		complain("the status", g.Code().String()+" "+g.Message(), s.Code().String()+" "+s.Message())
	}
	if g, s := linksOf(got), linksOf(sent); !slices.Equal(g, s) {
		complain("the links", g, s)
	}
	if got.Events().Len() != sent.Events().Len() {
		complain("the number of events", got.Events().Len(), sent.Events().Len())
	}
	if got.scope != sent.scope {
		complain("the scope", got.scope, sent.scope)
	}
	if name, _ := got.resource.Get("service.name"); name.AsString() != service {
		complain("the service", name.AsString(), service)
	}
	g, s := typed(got.Attributes()), typed(sent.Attributes())
	for key := range union(g, s) {
		if g[key] != s[key] {
			complain(key, orNone(g[key]), orNone(s[key]))
		}
	}
	return problems
}

func linksOf(s span) (links []string) {
	for _, link := range s.Links().All() {
		links = append(links, fmt.Sprint(link.TraceID(), link.SpanID(), typed(link.Attributes())))
	}
	return links
}

// differUI says where the UI's form of a span is not what was sent.
func differUI(got uiSpan, service string, sent span) (problems []string) {
	complain := func(what string, got, want any) {
		problems = append(problems, fmt.Sprintf("/api/traces: %s: %s is %v, want %v", title(sent), what, got, want))
	}
	if got.OperationName != sent.Name() {
		complain("the operation", got.OperationName, sent.Name())
	}
	if want := "fedhttp-example"; service != want {
		complain("the service", service, want)
	}
	for _, warning := range got.Warnings {
		complain("the warning", warning, "none")
	}
	// It drops what a link says, and keeps where it leads.
	var want []uiReference
	if !sent.ParentSpanID().IsEmpty() {
		want = append(want, uiReference{"CHILD_OF", sent.TraceID().String(), sent.ParentSpanID().String()})
	}
	for _, link := range sent.Links().All() {
		want = append(want, uiReference{"FOLLOWS_FROM", link.TraceID().String(), link.SpanID().String()})
	}
	if !slices.Equal(got.References, want) {
		complain("the references", got.References, want)
	}
	g, s := map[string]string{}, uiTags(sent)
	for _, tag := range got.Tags {
		if g[tag.Key] != "" {
			complain(tag.Key, "there twice", "once")
		}
		g[tag.Key] = fmt.Sprintf("%s %T %[2]v", tag.Type, tag.Value)
	}
	for key := range union(g, s) {
		if g[key] != s[key] {
			complain(key, orNone(g[key]), orNone(s[key]))
		}
	}
	return problems
}

// uiTags returns the tags that the UI's form of a span has: its attributes, and
// what Jaeger makes tags of.
func uiTags(sent span) map[string]string {
	tags := map[string]string{}
	text := func(key, value string) {
		if value != "" {
			tags[key] = fmt.Sprintf("string %T %[1]v", value)
		}
	}
	for key, v := range sent.Attributes().All() {
		switch v.Type() {
		case pcommon.ValueTypeInt:
			tags[key] = fmt.Sprintf("int64 %T %[1]v", json.Number(v.AsString()))
		case pcommon.ValueTypeBool:
			tags[key] = fmt.Sprintf("bool %T %[1]v", v.Bool())
		default: // a list becomes JSON
			tags[key] = fmt.Sprintf("string %T %[1]v", v.AsString())
		}
	}
	text("span.kind", strings.ToLower(sent.Kind().String()))
	text("otel.scope.name", sent.scope)
	if sent.Status().Code() == ptrace.StatusCodeError {
		tags["error"] = fmt.Sprintf("bool %T %[1]v", true)
		text("otel.status_code", "ERROR")
		text("otel.status_description", sent.Status().Message())
	}
	return tags
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func orNone(s string) string {
	if s == "" {
		return "missing"
	}
	return s
}
