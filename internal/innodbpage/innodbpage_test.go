package innodbpage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

const space = 7

// newFile makes a tablespace with pages of 16 KiB, of which the last one is unused.
func newFile(t *testing.T, flags uint32, pages int) []byte {
	t.Helper()
	f, err := parseHeader(binary.BigEndian.AppendUint32(append(make([]byte, offsetSpaceSize), 0, 0, 0, byte(pages), 0, 0, 0, 0), flags))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for n := range pages - 1 {
		page := make([]byte, f.pageSize)
		binary.BigEndian.PutUint32(page[offsetNumber:], uint32(n))
		binary.BigEndian.PutUint64(page[offsetLSN:], 0x1_0000_0000+uint64(n))
		binary.BigEndian.PutUint16(page[offsetType:], 17855) // an index
		binary.BigEndian.PutUint32(page[offsetSpace:], space)
		copy(page[200:], "some rows")
		if n == 0 {
			binary.BigEndian.PutUint32(page[offsetSpaceSize:], uint32(pages))
			binary.BigEndian.PutUint32(page[offsetSpaceFlags:], flags)
		}
		all = append(all, seal(f, page)...)
	}
	return append(all, make([]byte, f.pageSize)...)
}

// seal gives a page its checksums.
func seal(f file, page []byte) []byte {
	if !f.zipped {
		copy(page[len(page)-4:], page[offsetLSN+4:offsetLSN+8])
	}
	sum := f.sumPage(page)
	binary.BigEndian.PutUint32(page[offsetChecksum:], sum)
	if !f.zipped {
		binary.BigEndian.PutUint32(page[len(page)-trailerBytes:], sum)
	}
	return page
}

func TestCheckFile(t *testing.T) {
	for name, flags := range map[string]uint32{"pages of the default size": 0, "pages of 4 KiB": 3 << 6, "compressed tables": 4 << 1} {
		file := newFile(t, flags, 5)
		// However little a reader returns at once.
		count, err := CheckFile(iotest.HalfReader(bytes.NewReader(file)))
		if want := (Count{Sound: 4, Unused: 1}); err != nil || count != want {
			t.Errorf("%s: %+v, %v", name, count, err)
		}
	}
}

func TestCheckFileFindsDamage(t *testing.T) {
	const size = defaultPageSize
	cases := []struct {
		name   string
		damage func(file []byte) []byte
		page   int64
		says   string
	}{
		{"a bit of a row", func(f []byte) []byte { f[2*size+200] ^= 1; return f }, 2, "has the checksum"},
		{"a bit of the checksum", func(f []byte) []byte { f[size] ^= 1; return f }, 1, "has the checksum"},
		{"the checksum at the end", func(f []byte) []byte { f[2*size-8] ^= 1; return f }, 1, "at its end"},
		{"a write that was cut off", func(f []byte) []byte { f[2*size-1] ^= 1; return f }, 1, "another LSN at its end"},
		{"another page in the place", func(f []byte) []byte { copy(f[size:2*size], f[2*size:3*size]); return f }, 1, "says that it is page 2"},
		{"a page of another file", func(f []byte) []byte {
			page := f[size : 2*size]
			page[offsetSpace+3]++
			seal(file{pageSize: size}, page)
			return f
		}, 1, "is of tablespace 8, and the file is 7"},
		{"half a page", func(f []byte) []byte { return f[:3*size+100] }, 3, "ends too early"},
		{"no last page", func(f []byte) []byte { return f[:4*size] }, 4, "must have 5 pages"},
		{"nothing", func([]byte) []byte { return nil }, 0, "too short"},
		{"zeros", func(f []byte) []byte { return make([]byte, len(f)) }, 0, "no first page"},
		{"a size of pages that is none", func(f []byte) []byte { f[offsetSpaceFlags+2] = 0x03; return f }, 0, "says that pages have"},
	}
	for _, c := range cases {
		_, err := CheckFile(bytes.NewReader(c.damage(newFile(t, 0, 5))))
		var found *Damage
		if !errors.As(err, &found) || found.Page != c.page || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A reader that fails is no damage.
func TestCheckFileOfAReaderThatFails(t *testing.T) {
	_, err := CheckFile(iotest.TimeoutReader(bytes.NewReader(newFile(t, 0, 5))))
	var found *Damage
	if !errors.Is(err, iotest.ErrTimeout) || errors.As(err, &found) {
		t.Error(err)
	}
}

// A page that was encrypted or compressed as a whole cannot be checked, and is counted.
func TestCheckFileCountsWhatItCannotCheck(t *testing.T) {
	f := newFile(t, 0, 5)
	binary.BigEndian.PutUint16(f[defaultPageSize+offsetType:], typeEncrypted)
	count, err := CheckFile(bytes.NewReader(f))
	if want := (Count{Sound: 3, Unused: 1, Unchecked: 1}); err != nil || count != want {
		t.Errorf("%+v, %v", count, err)
	}
	total := Count{Sound: 1}
	if total.Add(count); total != (Count{Sound: 4, Unused: 1, Unchecked: 1}) {
		t.Errorf("%+v", total)
	}
}

func TestIsTablespace(t *testing.T) {
	for name, want := range map[string]bool{
		"ibdata1": true, "mysql.ibd": true, "undo_001": true, "app/orders.ibd": true, "extra.ibu": true,
		"ib_buffer_pool": false, "#innodb_redo/#ib_redo6": false, "mysql_upgrade_history": false, "app/undo_001": false, "mysql/general_log_213.sdi": false,
	} {
		if IsTablespace(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
