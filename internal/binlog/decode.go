package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

var (
	errShort = errors.New("it is short")
	errLong  = errors.New("it has more than it should")
)

// fields reads the fields of an event one after the other. After an error all are zero.
type fields struct {
	left []byte
	err  error
}

func (f *fields) take(n int) []byte {
	if f.err == nil && (n < 0 || n > len(f.left)) {
		f.err = errShort
	}
	if f.err != nil {
		return nil
	}
	taken := f.left[:n]
	f.left = f.left[n:]
	return taken
}

// fixed is a number of so many bytes.
func (f *fields) fixed(n int) uint64 {
	var all [8]byte
	copy(all[:], f.take(n))
	return binary.LittleEndian.Uint64(all[:])
}

func (f *fields) uuid() string { return formatUUID(f.take(uuidSize)) }

// packed is a number as the protocol between client and server packs it.
func (f *fields) packed() uint64 {
	switch first := f.fixed(1); first {
	case 0xfc:
		return f.fixed(2)
	case 0xfd:
		return f.fixed(3)
	case 0xfe:
		return f.fixed(8)
	default:
		return first
	}
}

// variable is a number as MySQL's serialization packs it: the ones at the end of the first
// byte say how many bytes follow.
func (f *fields) variable() uint64 {
	first := f.take(1)
	if first == nil {
		return 0
	}
	more := bits.TrailingZeros8(^first[0])
	var all [9]byte
	all[0] = first[0]
	copy(all[1:], f.take(more))
	if more >= 7 {
		return binary.LittleEndian.Uint64(all[1:])
	}
	return binary.LittleEndian.Uint64(all[:8]) >> (more + 1)
}

// signed is such a number with a sign.
func (f *fields) signed() int64 {
	n := f.variable()
	if n&1 == 1 {
		return ^int64(n >> 1) //nolint:gosec // the bits are those of the number
	}
	return int64(n >> 1) //nolint:gosec // it has 63 bits
}

const uuidSize = 16

func formatUUID(raw []byte) string {
	if len(raw) != uuidSize {
		return ""
	}
	h := hex.EncodeToString(raw)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func cString(raw []byte) string {
	text, _, _ := bytes.Cut(raw, []byte{0})
	return string(text)
}

// formatTagged is the form of a set with tags. Its number stands in the first and in the last
// byte of the count, whose last byte is 0 without tags.
const formatTagged = 1

// decodeSet reads a set of GTIDs.
func decodeSet(body []byte) (mysqlgtid.Set, error) {
	f := &fields{left: body}
	count := f.fixed(8)
	form := count >> 56
	switch form {
	case 0:
	case formatTagged:
		count = count << 8 >> 16
	default:
		return mysqlgtid.Set{}, fmt.Errorf("its form %d is not known", form)
	}
	var all mysqlgtid.Collector
	for ; count > 0 && f.err == nil; count-- {
		uuid, tag := f.uuid(), ""
		if form == formatTagged {
			tag = string(f.take(int(min(f.variable(), 1<<16)))) //nolint:gosec // it is small
		}
		last := int64(0)
		for intervals := f.fixed(8); intervals > 0 && f.err == nil; intervals-- {
			first, end := int64(f.fixed(8)), int64(f.fixed(8)) //nolint:gosec // compared below
			if f.err == nil && (first <= last || end <= first) {
				return mysqlgtid.Set{}, fmt.Errorf("numbers %d to %d are not in order", first, end)
			}
			if f.err == nil {
				all.AddRange(mysqlgtid.GTID{UUID: uuid, Tag: tag, Number: first}, end-1)
			}
			last = end
		}
	}
	if f.err == nil && len(f.left) > 0 {
		f.err = errLong
	}
	return all.Set(), f.err
}

// microseconds of both times of a transaction. The second one is there only where they
// differ.
func (f *fields) times() (written, committed time.Time) {
	const follows = 1 << 55
	n := f.fixed(7)
	m := n &^ follows
	if n&follows != 0 {
		m = f.fixed(7)
	}
	return fromMicros(n &^ follows), fromMicros(m)
}

func fromMicros(n uint64) time.Time { return time.UnixMicro(int64(n)).UTC() } //nolint:gosec // 55 bits

// decodeGTID reads the body of an event that begins a transaction without a tag.
func decodeGTID(body []byte) (t Transaction, err error) {
	f := &fields{left: body}
	f.fixed(1) // flags
	t.GTID.UUID = f.uuid()
	t.GTID.Number = int64(f.fixed(8)) //nolint:gosec // checked below
	const hasClocks = 2
	if kind := f.fixed(1); f.err == nil && kind != hasClocks {
		return t, fmt.Errorf("it has no logical clock, but %d", kind)
	}
	f.fixed(16) // the logical clock
	t.Written, t.Committed = f.times()
	t.Length = int64(min(f.packed(), 1<<62)) //nolint:gosec // it is less
	return t, checkGTID(f, t)
}

// checkGTID says what is wrong with what was read.
func checkGTID(f *fields, t Transaction) error {
	switch {
	case f.err != nil:
		return f.err
	case t.GTID.Number < 1:
		return fmt.Errorf("its number is %d", t.GTID.Number)
	case t.Length < 1:
		return errors.New("it does not say how long the transaction is")
	}
	return nil
}

// Fields of the event that begins a transaction with a tag. Those that follow are not
// needed.
const (
	fieldFlags = iota
	fieldUUID
	fieldNumber
	fieldTag
	fieldLastCommitted
	fieldSequence
	fieldWritten
	fieldCommitted
	fieldLength
)

// decodeTaggedGTID reads the body of an event that begins a transaction with a tag. Each
// field has a number, and may be left out.
func decodeTaggedGTID(body []byte) (t Transaction, err error) {
	f := &fields{left: body}
	f.variable() // version
	f.variable() // size
	f.variable() // the last field that a reader must know
	for next := uint64(0); len(f.left) > 0 && f.err == nil; next++ {
		id := f.variable()
		if id < next || id > fieldLength {
			break
		}
		next = id
		switch id {
		case fieldFlags, fieldLastCommitted, fieldSequence:
			readClock(f, id)
		case fieldUUID:
			raw := make([]byte, uuidSize)
			for i := range raw {
				raw[i] = byte(f.variable()) //nolint:gosec // one byte
			}
			t.GTID.UUID = formatUUID(raw)
		case fieldNumber:
			t.GTID.Number = f.signed()
		case fieldTag:
			t.GTID.Tag = string(f.take(int(min(f.variable(), 1<<16)))) //nolint:gosec // it is small
		case fieldWritten:
			t.Written = fromMicros(f.variable())
			t.Committed = t.Written
		case fieldCommitted:
			t.Committed = fromMicros(f.variable())
		case fieldLength:
			t.Length = int64(min(f.variable(), 1<<62)) //nolint:gosec // it is less
		}
	}
	if f.err == nil && t.GTID.UUID == "" {
		return t, errShort
	}
	return t, checkGTID(f, t)
}

// readClock reads a field that is not needed.
func readClock(f *fields, id uint64) {
	if id == fieldFlags {
		f.variable()
		return
	}
	f.signed()
}
