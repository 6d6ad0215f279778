// Package binlogtest writes binlogs for tests, as a server does.
package binlogtest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Transaction to write.
type Transaction struct {
	GTID      mysqlgtid.GTID
	Committed time.Time
	// Size of its changes in bytes.
	Size int
}

// WriteFile writes a file that begins after so many transactions. Transactions have no tags,
// and neither have those before.
func WriteFile(previous mysqlgtid.Set, closed bool, all ...Transaction) []byte {
	w := &writer{}
	w.WriteString("\xfebin")
	format := binary.LittleEndian.AppendUint16(nil, 4)
	format = append(format, make([]byte, 50+4)...)
	copy(format[2:], "9.7.4")
	w.event(15, append(format, 19, 0, 1))
	w.event(35, encodeSet(previous))
	for _, t := range all {
		w.transaction(t)
	}
	if closed {
		w.event(4, append(make([]byte, 8), "next"...))
	}
	return w.Bytes()
}

type writer struct{ bytes.Buffer }

func (w *writer) event(kind byte, body []byte) {
	header := make([]byte, 19)
	header[4] = kind
	size := uint32(len(header) + len(body) + 4) //nolint:gosec // small
	binary.LittleEndian.PutUint32(header[9:], size)
	binary.LittleEndian.PutUint32(header[13:], uint32(w.Len())+size) //nolint:gosec // small
	all := append(header, body...)
	_, _ = w.Write(binary.LittleEndian.AppendUint32(all, crc32.ChecksumIEEE(all)))
}

func (w *writer) transaction(t Transaction) {
	body := append([]byte{0}, encodeUUID(t.GTID.UUID)...)
	body = binary.LittleEndian.AppendUint64(body, uint64(t.GTID.Number)) //nolint:gosec // positive
	body = append(body, 2)
	body = append(body, make([]byte, 16)...)
	at := uint64(t.Committed.UnixMicro()) //nolint:gosec // positive
	for i := range 7 {
		body = append(body, byte(at>>(8*i))) //nolint:gosec // a byte
	}
	changes := make([]byte, t.Size)
	length := 19 + len(body) + 9 + 4 + 19 + len(changes) + 4
	body = binary.LittleEndian.AppendUint64(append(body, 0xfe), uint64(length)) //nolint:gosec // positive
	w.event(33, body)
	w.event(2, changes)
}

func encodeUUID(text string) []byte {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil {
		panic(err)
	}
	return raw
}

// encodeSet writes a set, each of its transactions as an interval of its own server.
func encodeSet(set mysqlgtid.Set) []byte {
	type source struct {
		uuid   string
		ranges []byte
		count  uint64
	}
	var sources []source
	for _, part := range strings.Split(set.String(), ",") {
		if part == "" {
			continue
		}
		fields := strings.Split(part, ":")
		s := source{uuid: fields[0]}
		for _, text := range fields[1:] {
			one, err := mysqlgtid.Parse(fields[0] + ":" + text)
			if err != nil {
				panic(err)
			}
			first, _ := one.First()
			last, _ := one.Last()
			s.ranges = binary.LittleEndian.AppendUint64(s.ranges, uint64(first.Number))  //nolint:gosec // positive
			s.ranges = binary.LittleEndian.AppendUint64(s.ranges, uint64(last.Number)+1) //nolint:gosec // positive
			s.count++
		}
		sources = append(sources, s)
	}
	body := binary.LittleEndian.AppendUint64(nil, uint64(len(sources)))
	for _, s := range sources {
		body = append(body, encodeUUID(s.uuid)...)
		body = binary.LittleEndian.AppendUint64(body, s.count)
		body = append(body, s.ranges...)
	}
	return body
}
