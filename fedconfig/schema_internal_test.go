package fedconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// form is what the schema must say of a type, its descriptions and bounds aside.
func form(t reflect.Type) map[string]any {
	ref := func(name string) map[string]any { return map[string]any{"$ref": "#/$defs/" + name} }
	switch {
	case t == durationType:
		return ref("duration")
	case t == timeType:
		return ref("time")
	case isEnum(t):
		tokens := []any{}
		for _, token := range tokensOf(t) {
			tokens = append(tokens, token)
		}
		return map[string]any{"anyOf": []any{map[string]any{"enum": tokens}, ref("reference")}}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return ref("boolean")
	case reflect.Int:
		return ref("whole")
	case reflect.Float64:
		return ref("number")
	case reflect.Slice:
		return map[string]any{"type": "array", "items": form(t.Elem())}
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return map[string]any{"type": "object", "additionalProperties": form(t.Elem())}
		}
	case reflect.Struct:
		properties, required := map[string]any{}, []any{}
		for _, f := range fieldsOf(t) {
			properties[f.key] = form(t.Field(f.index).Type)
			if f.required {
				required = append(required, f.key)
			}
		}
		object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			object["required"] = required
		}
		return object
	}
	// A field that a file cannot give belongs to notInFile.
	panic(fmt.Sprintf("the decoder has no form for %v", t))
}

// bare is a part of the schema without what form does not say, and with its
// references to parts that are not the form of a scalar resolved.
func bare(part, defs map[string]any) map[string]any {
	result := map[string]any{}
	if ref, ok := part["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/$defs/")
		switch name {
		case "duration", "time", "boolean", "whole", "number", "reference":
			result["$ref"] = ref
		default:
			return bare(defs[name].(map[string]any), defs)
		}
	}
	for key, value := range part {
		switch key {
		case "type", "enum", "required":
			result[key] = value
		case "properties":
			properties := map[string]any{}
			for name, property := range value.(map[string]any) {
				properties[name] = bare(property.(map[string]any), defs)
			}
			result[key] = properties
		case "items", "additionalProperties":
			if below, ok := value.(map[string]any); ok {
				value = bare(below, defs)
			}
			result[key] = value
		case "anyOf":
			var all []any
			for _, one := range value.([]any) {
				all = append(all, bare(one.(map[string]any), defs))
			}
			result[key] = all
		}
	}
	return result
}

func schemaMap(t *testing.T) map[string]any {
	t.Helper()
	var whole map[string]any
	if err := json.Unmarshal(Schema(), &whole); err != nil {
		t.Fatal(err)
	}
	return whole
}

// TestSchemaForm: the schema has the fields of the root's structs, no more and
// no less, with their types and tokens.
func TestSchemaForm(t *testing.T) {
	t.Parallel()
	whole := schemaMap(t)
	defs := whole["$defs"].(map[string]any)
	if diff := cmp.Diff(form(reflect.TypeFor[document]()), bare(whole, defs)); diff != "" {
		t.Errorf("-the structs +schema.json\n%s", diff)
	}
}

// eachField visits the fields of a struct and of those below it.
func eachField(t reflect.Type, visit func(f field, of reflect.Type)) {
	switch {
	case t == timeType:
	case t.Kind() == reflect.Struct:
		for _, f := range fieldsOf(t) {
			visit(f, t)
			eachField(t.Field(f.index).Type, visit)
		}
	case t.Kind() == reflect.Slice:
		eachField(t.Elem(), visit)
	}
}

// TestTables: the tables of fields name fields that there are, and the schema
// gives each a description and the same default.
func TestTables(t *testing.T) {
	t.Parallel()
	defs := schemaMap(t)["$defs"].(map[string]any)
	known := map[string]bool{"Peer.Base": true}
	eachField(reflect.TypeFor[document](), func(f field, of reflect.Type) {
		known[f.id] = true
		part, ok := defs[partOf(of)].(map[string]any)
		if !ok {
			return // the document itself
		}
		property := part["properties"].(map[string]any)[f.key].(map[string]any)
		resolved := property
		if ref, ok := property["$ref"].(string); ok && property["description"] == nil {
			resolved = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		if text, _ := resolved["description"].(string); text == "" {
			t.Errorf("%s has no description", f.id)
		}
		standard, has := property["default"]
		if f.standard != "" && f.id != "Signals.CorrelationID" && (!has || fmt.Sprint(standard) != f.standard) {
			t.Errorf("%s: default %v in the schema, %s in the loader", f.id, standard, f.standard)
		}
	})
	for _, id := range slices.Concat(required, notInFile) {
		if !known[id] {
			t.Errorf("%s is no field", id)
		}
	}
	for _, table := range []map[string]string{defaults, wants} {
		for id := range table {
			if !known[id] {
				t.Errorf("%s is no field", id)
			}
		}
	}
}

func partOf(t reflect.Type) string {
	return strings.TrimSuffix(keyOf(t.Name()), "_policy")
}

// TestExample: the example shows every field, and where there is a default its
// value is that.
func TestExample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/peers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("peers.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	defs := schemaMap(t)["$defs"].(map[string]any)
	var check func(s *spot, of reflect.Type)
	check = func(s *spot, of reflect.Type) {
		if of.Kind() == reflect.Slice {
			check(s.children[len(s.children)-1], of.Elem())
			return
		}
		if of.Kind() != reflect.Struct || of == timeType {
			return
		}
		for _, f := range fieldsOf(of) {
			child := s.at(f.name)
			if child == nil {
				t.Errorf("%s.%s is not in the example", s.path, f.key)
				continue
			}
			if part, ok := defs[partOf(of)].(map[string]any); ok {
				property := part["properties"].(map[string]any)[f.key].(map[string]any)
				got := child.value.Interface()
				standard, ok := property["default"]
				if _, is := got.(time.Duration); is && ok {
					standard, _ = time.ParseDuration(standard.(string))
				}
				if ok && fmt.Sprint(standard) != fmt.Sprint(got) {
					t.Errorf("%s is %v, its default %v", child.path, got, standard)
				}
			}
			check(child, of.Field(f.index).Type)
		}
	}
	check(c.root, reflect.TypeFor[document]())
}

// TestSchemaFiles: the schema accepts what the loader accepts, and refuses what
// it refuses for its form.
func TestSchemaFiles(t *testing.T) {
	t.Parallel()
	compiled := compile(t)
	example, err := os.ReadFile("testdata/peers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	test := func(content string, want bool) {
		t.Helper()
		var value any
		if err := yaml.Load([]byte(content), &value); err != nil {
			t.Fatalf("%s: %v", content, err)
		}
		_, loadErr := Parse("p.yaml", []byte(content))
		if schemaErr := compiled.Validate(jsonOf(value)); (schemaErr == nil) != want || (loadErr == nil) != want {
			t.Errorf("%s\nwant accepted: %v\nthe schema: %v\nthe loader: %v", content, want, schemaErr, loadErr)
		}
	}
	const peer = "peers: [{id: b, origins: [https://b.example], "
	test(string(example), true)
	for _, good := range []string{
		`hold: {max: -1, release_rate: 2}`, `retry: {min_backoff: 1.5s, max_backoff: 1h2m3s4ms5us6ns}`, `denial: {hold_off: -1s}`,
		`signals: {dialects: [{kind: kong}, {kind: proxy-status, hops: [{name: a, envoy: true, policy: true}]}]}`,
		`signals: {dialects: [{kind: kong, hops: [{name: a, envoy: false}]}]}`, `signals: {failure_statuses: []}`, `routes: [{pattern: /}]`, `routes: [{pattern: "GET  /a/{b...}", task: {obligations: {}}}]`,
		`default_terms: {}`, `receipt: ignore, propagation: all`, `allow_plaintext: true, require_anchor: true`,
	} {
		test(peer+good+"}]", true)
	}
	for _, bad := range []string{"[]", "{}", "peers: []", "peers: [7]", "peers: [{}]", "peers: [{id: b}]", "peers: [{origins: [https://b]}]", "peers: {}",
		"version: 2\npeers: [{id: b, origins: [https://b]}]", "peers: [{id: b, origins: []}]", "peers: [{id: \"\", origins: [https://b]}]",
		"peers: [{id: é, origins: [https://b]}]", "peers: [{id: b, origins: [b]}]", "peers: [{id: b, origins: [https://b/c]}]", "peers: [{id: b, origins: [https://c@b]}]",
	} {
		test(bad, false)
	}
	for _, bad := range []string{
		`unknown: 1`, `require_task: "yes"`, `require_task: 1`, `receipt: Verify`, `receipt: ""`, `propagation: 1`,
		`retry: {max_attempts: 0}`, `retry: {max_attempts: -1}`, `retry: {max_attempts: 1.5}`, `retry: {max_attempts: "1"}`, `retry: {min_backoff: 1}`,
		`retry: {min_backoff: -1s}`, `retry: {min_backoff: 1 s}`, `retry: {budget_ratio: 0}`, `retry: {budget_ratio: -1}`, `retry: {other: 1}`,
		`breaker: {failures: 0}`, `breaker: {trials: 0}`, `breaker: {open_for: -1s}`, `hold: {max: 0}`, `hold: {release_rate: -1}`, `hold: 1`, `denial: {budget: -1}`,
		`denial: {budget: 1048577}`, `signals: {policy_evaluated: "a b"}`, `signals: {policy_evaluated: ""}`, `signals: {failure_statuses: [200]}`,
		`signals: {failure_statuses: 403}`, `signals: {dialects: [{}]}`, `signals: {dialects: [{kind: ""}]}`, `signals: {dialects: [{kind: apache}]}`,
		`signals: {dialects: [{kind: kong, hops: [{}]}]}`, `signals: {dialects: [{kind: kong, hops: [{name: ""}]}]}`, `signals: {dialects: [{kind: kong, hops: [{name: a, policy: true}]}]}`, `signals: {correlation_prefixes: {"": policy}}`, `signals: {correlation_prefixes: {"a,": policy}}`,
		`signals: {correlation_prefixes: {" a": policy}}`, `signals: {correlation_prefixes: {a: unknown}}`, `routes: [{}]`, `routes: [{pattern: b.example/}]`,
		`routes: [{pattern: /, task: {obligations: {a: b}}}]`, `routes: [{pattern: /, task: {policy_deadline: tomorrow}}]`, `default_terms: {a: 1}`, `default_terms: [a]`,
	} {
		test(peer+bad+"}]", false)
	}
}

// TestSchemaReferences: a reference may stand for any value, in both.
func TestSchemaReferences(t *testing.T) {
	compiled := compile(t)
	example, err := os.ReadFile("testdata/peers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Load(example, &doc); err != nil {
		t.Fatal(err)
	}
	tried := 0
	var each func(n *yaml.Node)
	each = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				continue // a key
			}
			each(child)
		}
		if n.Kind != yaml.ScalarNode {
			return
		}
		tried++
		t.Setenv("FEDCONFIG_VALUE", n.Value)
		before := *n
		n.SetString("${FEDCONFIG_VALUE}")
		content, err := yaml.Dump(&doc)
		*n = before
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := yaml.Load(content, &value); err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(jsonOf(value)); err != nil {
			t.Errorf("line %d: the schema: %v", n.Line, err)
		}
		if _, err := Parse("p.yaml", content); err != nil {
			t.Errorf("line %d: the loader: %v", n.Line, err)
		}
	}
	each(&doc)
	if tried < 50 {
		t.Errorf("only %d values", tried)
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("schema.json", whole); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// jsonOf turns what YAML gives into what JSON gives: times were text in the file.
func jsonOf(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			value[key] = jsonOf(below)
		}
	case []any:
		for i, below := range value {
			value[i] = jsonOf(below)
		}
	case time.Time:
		return value.Format(time.RFC3339)
	}
	return value
}
