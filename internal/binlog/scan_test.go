package binlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// sample reads a file that a real server has written.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func scanBytes(data []byte) (Summary, []Transaction, error) {
	var all []Transaction
	s, err := Scan(bytes.NewReader(data), func(t Transaction) error { all = append(all, t); return nil })
	return s, all, err
}

const name = "5b8f3c1e-0000-5000-8000-000000000001"

func TestScanOfRealFiles(t *testing.T) {
	cases := []struct {
		file, previous, has string
		count               int
		closed              bool
	}{
		{"primary.000002", "", name + ":1-5:nightly:1-2", 7, true},
		{"primary.000003", name + ":1-5:nightly:1-2", name + ":6", 1, false},
		{"secondary.000001", "", name + ":3-6:nightly:1-2", 6, false},
	}
	for _, c := range cases {
		data := sample(t, c.file)
		s, all, err := scanBytes(data)
		if err != nil || s.Previous.String() != c.previous || s.Transactions.String() != c.has || len(all) != c.count || s.Closed != c.closed || s.Size != int64(len(data)) || !strings.HasPrefix(s.ServerVersion, "9.7.") {
			t.Errorf("%s: %+v, %d, %v", c.file, s, len(all), err)
			continue
		}
		if first, last := all[0], all[len(all)-1]; !s.First.Equal(first.Committed) || !s.Last.Equal(last.Committed) || first.Written.Before(first.Committed) || first.Committed.Year() < 2026 {
			t.Errorf("%s: %+v to %+v", c.file, first, last)
		}
		head, err := ReadHead(bytes.NewReader(data))
		if err != nil || !head.Previous.IsEqual(s.Previous) || head.ServerVersion != s.ServerVersion || !head.Transactions.IsEmpty() {
			t.Errorf("the head of %s: %+v, %v", c.file, head, err)
		}
		slow, err := Scan(iotest.OneByteReader(bytes.NewReader(data)), func(Transaction) error { return nil })
		if err != nil || !slow.Transactions.IsEqual(s.Transactions) {
			t.Errorf("%s byte by byte: %+v, %v", c.file, slow, err)
		}
	}
}

// A file that ends anywhere is truncated, and what is before is whole. Where it ends between
// two transactions, nothing shows that there was more.
func TestScanOfTruncatedFiles(t *testing.T) {
	data := sample(t, "primary.000002")
	whole, all, err := scanBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	for length := range data {
		s, found, err := scanBytes(data[:length])
		complete := 0
		for _, tx := range all {
			if tx.Offset+tx.Length <= int64(length) {
				complete++
			}
		}
		if err != nil && !errors.Is(err, ErrTruncated) || len(found) != complete || s.Size > int64(length) || !whole.Transactions.Contains(s.Transactions) {
			t.Fatalf("%d bytes: %d transactions of %d, %+v, %v", length, len(found), complete, s, err)
		}
		if err == nil && length < int(all[0].Offset) {
			t.Fatalf("%d bytes without an event are taken for a file", length)
		}
	}
}

// A bit that has changed anywhere is found, but for the flag that a server changes in place.
func TestScanOfDamagedFiles(t *testing.T) {
	data := sample(t, "primary.000003")
	const flags = 4 + 17
	for i := range data {
		damaged := bytes.Clone(data)
		damaged[i] ^= 1
		_, _, err := scanBytes(damaged)
		if i == flags {
			if err != nil {
				t.Errorf("the flag: %v", err)
			}
			continue
		}
		if err == nil {
			t.Errorf("byte %d", i)
		}
	}
}

func TestScanRefuses(t *testing.T) {
	var unsupported *Unsupported
	var damage *Damage
	if _, _, err := scanBytes([]byte("\xfdbin and what follows")); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "binlog_encryption") {
		t.Errorf("an encrypted file: %v", err)
	}
	for _, text := range []string{"no binlog", "\xfebin" + strings.Repeat("x", 200), "\xfebin" + strings.Repeat("\x00", 200)} {
		if _, _, err := scanBytes([]byte(text)); !errors.As(err, &damage) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
	data := sample(t, "primary.000003")
	ended := errors.New("enough")
	if _, err := Scan(bytes.NewReader(data), func(Transaction) error { return ended }); !errors.Is(err, ended) {
		t.Errorf("an error of the caller: %v", err)
	}
	broken := errors.New("the disk")
	if _, err := Scan(io.MultiReader(bytes.NewReader(data[:200]), iotest.ErrReader(broken)), func(Transaction) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("an error of the reader: %v", err)
	}
}

// Whatever a file holds, it is read to its end or refused, and no more is claimed than is
// there.
func FuzzScan(f *testing.F) {
	for _, name := range []string{"primary.000002", "primary.000003", "secondary.000001"} {
		f.Add(sample(f, name))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		end := int64(0)
		s, err := Scan(bytes.NewReader(data), func(tx Transaction) error {
			if tx.Offset < end || tx.Length < 1 || tx.Offset+tx.Length > int64(len(data)) {
				t.Fatalf("%+v after %d, of %d bytes", tx, end, len(data))
			}
			end = tx.Offset + tx.Length
			return nil
		})
		if s.Size > int64(len(data)) || err == nil && s.Size != int64(len(data)) {
			t.Fatalf("%+v of %d bytes, %v", s, len(data), err)
		}
	})
}

// FuzzDecode reads the bodies of events without their checksums.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 1, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _ = decodeSet(body)
		_, _ = decodeGTID(body)
		_, _ = decodeTaggedGTID(body)
	})
}
