package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listeners returns where a process listens, "tcp 127.0.0.1:80" and the like,
// sorted. It reads Linux's /proc.
func listeners(t *testing.T, pid int) (found []string) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]bool{}
	for _, f := range files {
		link, _ := os.Readlink(filepath.Join(proc, "fd", f.Name())) // it may be closed by now
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	// The states of a socket that takes whatever comes.
	for table, state := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		content, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == state && sockets[fields[9]] {
				found = append(found, table+" "+kernelAddress(t, fields[1]))
			}
		}
	}
	slices.Sort(found)
	return found
}

// kernelAddress turns 0100007F:1F90 into 127.0.0.1:8080: the address is in
// words of the machine's byte order, which is taken for little-endian.
func kernelAddress(t *testing.T, s string) string {
	t.Helper()
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	ip, _ := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", ip, number)
}
