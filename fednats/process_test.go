package fednats

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// nodeEnv has the configuration of a server, where this binary is to be one.
const nodeEnv = "FEDNATS_TEST_NODE"

// TestMain has the test's binary stand in for a server's, in processes that can be
// killed.
func TestMain(m *testing.M) {
	if cfg := os.Getenv(nodeEnv); cfg != "" {
		if err := serveNode(cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// nodeConfig is what of a ServerConfig another process can be told.
type nodeConfig struct {
	Dir, Name, Listen, Cluster string
	Routes                     []string
}

// serveNode runs a server until standard input ends: with the process of the test,
// in whichever way that does.
func serveNode(text string) error {
	var cfg nodeConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	s, err := StartServer(ctx, ServerConfig{Dir: cfg.Dir, Name: cfg.Name, Listen: cfg.Listen, Cluster: cfg.Cluster, Routes: cfg.Routes})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is a server in a process of its own.
type process struct{ cmd *exec.Cmd }

func startProcess(_ context.Context, cfg ServerConfig) (node, error) {
	text, err := json.Marshal(nodeConfig{cfg.Dir, cfg.Name, cfg.Listen, cfg.Cluster, cfg.Routes})
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(context.Background(), exe)
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
	cmd.Stderr = &said
	if _, err := cmd.StdinPipe(); err != nil { // closed by Wait
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("node %s: %w, %w: %s", cfg.Name, err, cmd.Wait(), said.String())
	}
	return &process{cmd}, nil
}

// Close is SIGKILL.
func (p *process) Close() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// killed reports whether it was that which ended the process.
func (p *process) killed() bool { return p.cmd.ProcessState.String() == "signal: killed" }

// kill ends the nodes at once, without a word to any of them.
func (c *cluster) kill(nodes ...int) {
	c.t.Helper()
	for _, n := range nodes {
		must(c.t, c.nodes[n].(*process).cmd.Process.Kill())
	}
	for _, n := range nodes {
		p := c.nodes[n].(*process)
		c.stop(n)
		if !p.killed() {
			c.t.Errorf("node %d has ended otherwise: %v", n, p.cmd.ProcessState)
		}
	}
}
