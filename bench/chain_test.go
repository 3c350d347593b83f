package bench

import (
	"context"
	"net/http"
	"testing"
)

func BenchmarkChain(b *testing.B) {
	for _, t := range Sampling() {
		run := func(name string, rt http.RoundTripper, ctx context.Context) {
			b.Run(t.Name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := Call(ctx, rt, http.MethodGet); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("stub", Stub{}, context.Background())
		run("otelhttp", Otelhttp(t), context.Background())
		plain, ctx := Fedhttp(t, false)
		run("fedhttp", plain, ctx)
		obliged, ctx := Fedhttp(t, true)
		run("fedhttp obligations", obliged, ctx)
	}
}
