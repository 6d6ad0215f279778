package etcd

import (
	"bytes"
	"crypto/sha256"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-db/holdfast/internal/backup"
)

func TestTrailed(t *testing.T) {
	data := bytes.Repeat([]byte("etcd"), 1000)
	sum := sha256.Sum256(data)
	whole := append(bytes.Clone(data), sum[:]...)
	other := bytes.Clone(whole)
	other[17]++
	cases := []struct {
		name string
		data []byte
		says string
	}{
		{"a good one", whole, ""},
		{"one without data", sum256(nil), ""},
		{"one that was changed", other, "and says"},
		{"one that ends early", whole[:len(whole)-1], "and says"},
		{"one that has hardly begun", whole[:10], "after 10 bytes"},
		{"nothing", nil, "after 0 bytes"},
	}
	for _, tc := range cases {
		for pieces, from := range map[string]io.Reader{"at once": bytes.NewReader(tc.data), "byte by byte": iotest.OneByteReader(bytes.NewReader(tc.data))} {
			got := &trailed{hash: sha256.New()}
			if _, err := io.Copy(struct{ io.Writer }{got}, from); err != nil {
				t.Fatal(err)
			}
			if err := got.checkSum(); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, %s: %v", tc.name, pieces, err)
			}
		}
	}
}

func sum256(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

// A snapshot that is none is refused before etcd's program is asked.
func TestVerifyRefusesWhatIsNoSnapshot(t *testing.T) {
	s := &Source{Program: "/nonexistent", Scratch: t.TempDir()}
	if _, err := s.VerifyCopy(t.Context(), strings.NewReader("hello")); !backup.InVain(err) {
		t.Error(err)
	}
	if _, err := s.VerifyCopy(t.Context(), bytes.NewReader(sum256(nil))); err == nil || !strings.Contains(err.Error(), "etcdutl") {
		t.Error(err)
	}
}
