package fedconfig_test

import (
	"fmt"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

func Example() {
	peers, err := fedconfig.Load("testdata/peers.yaml")
	if err != nil {
		fmt.Println(err) // every fault on a line of its own
		return
	}
	transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Book: &fedhttp.PolicyBook{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.Close()
	// go fedconfig.Watch(ctx, "testdata/peers.yaml", transport)
	for _, p := range transport.Status() {
		fmt.Println(p.ID, p.Origins)
	}
	// Output:
	// org-a [https://registry.a.example]
	// org-b [https://registry.b.example https://registry.b.example:8443]
}

func ExampleParse() {
	_, err := fedconfig.Parse("peers.yaml", []byte(`peers:
  - id: org-b
    orgins: [https://registry.b.example]
    hold: {max_wait: 300}
`))
	fmt.Println(err)
	// Output:
	// peers.yaml:2:5: peers[0].origins: is missing; want a list of origins such as https://registry.b.example
	// peers.yaml:3:5: peers[0]: unknown key "orgins"; did you mean origins?
	// peers.yaml:4:22: peers[0].hold.max_wait: 300 has no unit; want a duration such as 150ms, 30s or 1h30m
}
