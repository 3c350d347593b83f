package fedtest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fedhttp/fedhttp/fedtest"
)

// Two calls fail in the same way, and only the peer knows that one of them was
// refused and the other one never arrived.
func Example() {
	peer := fedtest.NewPeer(fedtest.Config{
		Hidden:       fedtest.SignalsTelling,
		QuarantineAt: 150,
		Policy: func(r fedtest.Request) fedtest.Verdict {
			return fedtest.Verdict{Deny: r.Capability == "export", Reason: "SCOPE_NARROWED"}
		},
	})
	defer peer.Close()
	held := peer.Anchor().Version
	peer.Rotate()

	call := func(path, anchor string) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, peer.URL+path, strings.NewReader("{}"))
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set(fedtest.HeaderAnchorVersion, anchor)
		resp, err := peer.Client().Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		fmt.Println(path, resp.Status)
	}
	call("/export/1", peer.Anchor().Version)
	call("/translate/2", held)

	for _, task := range peer.Tasks() {
		fmt.Printf("%s: %d sent, %d evaluated, %d denied\n", task.ID, task.Sends, task.Evaluations, task.Denials)
	}
	fmt.Println("denials:", peer.Engine.Ledger().Denials)
	// Output:
	// /export/1 403 Forbidden
	// /translate/2 403 Forbidden
	// /export/1: 1 sent, 1 evaluated, 1 denied
	// /translate/2: 1 sent, 0 evaluated, 0 denied
	// denials: 1
}

// A request that the policy engine has seen, and whose client cannot know.
func ExampleLose() {
	peer := fedtest.NewUnstartedPeer(fedtest.Config{})
	defer peer.Close()
	peer.On("/translate/1", fedtest.Lose(fedtest.Pass(), fedtest.CloseConnection()))

	resp, err := peer.Client().Get(peer.URL + "/translate/1")
	if err == nil {
		resp.Body.Close()
	}
	fmt.Println("failed:", err != nil)
	fmt.Println("evaluations:", peer.Evaluations("/translate/1"))
	// Output:
	// failed: true
	// evaluations: 1
}
