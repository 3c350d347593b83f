package fedhttp_test

import (
	"context"
	"testing"

	"github.com/fedhttp/fedhttp"
)

func TestTaskInContext(t *testing.T) {
	t.Parallel()
	if task, ok := fedhttp.TaskFromContext(context.Background()); ok || task.Capability != "" {
		t.Errorf("an empty context has task %+v", task)
	}
	outer := fedhttp.ContextWithTask(context.Background(), fedhttp.Task{ID: "1", Capability: "a", Scope: "s"})
	inner := fedhttp.ContextWithTask(outer, fedhttp.Task{ID: "2"})
	if task, ok := fedhttp.TaskFromContext(inner); !ok || task.ID != "2" || task.Capability != "" || task.Scope != "" {
		t.Errorf("the inner task is %+v; it replaces the outer, and is not merged", task)
	}
	if task, ok := fedhttp.TaskFromContext(outer); !ok || task.ID != "1" {
		t.Errorf("the outer task is %+v", task)
	}
	type other struct{}
	derived, cancel := context.WithCancel(context.WithValue(outer, other{}, 1))
	defer cancel()
	if task, ok := fedhttp.TaskFromContext(derived); !ok || task.ID != "1" {
		t.Errorf("a derived context has %+v", task)
	}
	// What is done to the copy is not done to the context's.
	task, _ := fedhttp.TaskFromContext(outer)
	task.ID = "changed"
	if again, _ := fedhttp.TaskFromContext(outer); again.ID != "1" {
		t.Errorf("the context's task changed to %+v", again)
	}
}

func TestTermsGrant(t *testing.T) {
	t.Parallel()
	terms := fedhttp.Terms{"residency": "eu", "licence": "", "a": "b"}
	for _, test := range []struct {
		terms, obligations fedhttp.Terms
		want               bool
	}{
		{nil, nil, true},
		{nil, fedhttp.Terms{}, true},
		{terms, nil, true},
		{nil, fedhttp.Terms{"a": "b"}, false},
		{nil, fedhttp.Terms{"a": ""}, false}, // absent is not empty
		{terms, fedhttp.Terms{"licence": ""}, true},
		{terms, fedhttp.Terms{"residency": "eu", "a": "b"}, true},
		{terms, fedhttp.Terms{"residency": "eu", "a": "c"}, false},
		{terms, fedhttp.Terms{"residency": "EU"}, false},
		{terms, fedhttp.Terms{"Residency": "eu"}, false},
		{terms, fedhttp.Terms{"residency": "eu "}, false},
		{terms, fedhttp.Terms{"residency": ""}, false},
		{terms, terms, true},
	} {
		if got := test.terms.Grants(test.obligations); got != test.want {
			t.Errorf("%v grants %v: %v, want %v", test.terms, test.obligations, got, test.want)
		}
	}
}
