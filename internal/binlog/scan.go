package binlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Transaction is one of a file.
type Transaction struct {
	GTID mysqlgtid.GTID
	// Committed is when the server committed it that took it from a client, by the clock
	// of that server. It is the same in the binlogs of all members of a group.
	Committed time.Time
	// Written is when the server that wrote the file committed it, by its own clock.
	Written time.Time
	// Offset is where it begins in the file, and Length how long it is, in bytes.
	Offset, Length int64
}

// Summary of a file.
type Summary struct {
	// ServerVersion that wrote the file.
	ServerVersion string
	// Previous are the transactions that the server had executed before the file, and
	// Transactions those that are whole in it.
	Previous, Transactions mysqlgtid.Set
	// First and Last are when the first and the last of the transactions in the file were
	// committed, in its order; zero for none. See Transaction.Committed.
	First, Last time.Time
	// Earliest and Latest are the extremes of all of them.
	Earliest, Latest time.Time
	// Size of what is whole, in bytes: behind it a truncated file has a part of an event or of
	// a transaction.
	Size int64
	// Closed says that the server has ended the file.
	Closed bool
}

// ErrTruncated says that a file ends within an event or a transaction. What is before
// that is good: a server that is killed leaves such a file.
var ErrTruncated = errors.New("the binlog ends within a transaction")

// Damage is a file that is not as a server has written it.
type Damage struct {
	// Offset of the event in the file.
	Offset int64
	Says   string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("the binlog is damaged at offset %d: %s", d.Offset, d.Says)
}

// Unsupported is a file that may be good, and cannot be read.
type Unsupported struct{ Says string }

func (u *Unsupported) Error() string { return u.Says }

// Scan reads a file to its end, and calls each with every transaction that is whole, in the
// order of the file. An error of each ends it. The summary holds also with an error: it is
// of what was read before.
func Scan(from io.Reader, each func(Transaction) error) (Summary, error) {
	s := &scanner{from: bufio.NewReaderSize(from, bufferSize), sum: crc32.NewIEEE(), each: each}
	err := s.scanFile()
	s.summary.Transactions = s.found.Set()
	return s.summary, err
}

// ReadHead reads a file up to the list of transactions that came before it, and no further.
func ReadHead(from io.Reader) (Summary, error) {
	s := &scanner{from: bufio.NewReaderSize(from, bufferSize), sum: crc32.NewIEEE(), headOnly: true}
	err := s.scanFile()
	return s.summary, err
}

const (
	bufferSize = 64 << 10
	headerSize = 19
	crcSize    = 4
	// largest bodies of the events that are read: sets of GTIDs are longer than the others.
	largestBody, largestSet = 64 << 10, 64 << 20
)

// Kinds of events.
const (
	eventRotate        = 4
	eventStop          = 3
	eventFormat        = 15
	eventGTID          = 33
	eventAnonymous     = 34
	eventPreviousGTIDs = 35
	eventTaggedGTID    = 42
)

// inUse is the flag of a file that its server has not ended.
const inUse = 1

// magic begins each file; those that are encrypted begin in another way.
const (
	magic          = "\xfebin"
	magicEncrypted = "\xfdbin"
)

type scanner struct {
	from *bufio.Reader
	sum  hash.Hash32
	each func(Transaction) error

	at      int64 // where the event begins
	summary Summary
	found   mysqlgtid.Collector
	hasCRC  bool
	hasSet  bool
	// headOnly ends with the list of the transactions before the file.
	headOnly bool
	// open is the transaction that is being read; nil for none.
	open *Transaction
}

// event is the header of one.
type event struct {
	header [headerSize]byte
	kind   byte
	size   int64 // with its header
	flags  uint16
}

func (s *scanner) scanFile() error {
	start := make([]byte, len(magic))
	switch _, err := io.ReadFull(s.from, start); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrTruncated
	case err != nil:
		return err
	case string(start) == magicEncrypted:
		return &Unsupported{"the binlog is encrypted (binlog_encryption), and its key is in the server's keyring: it cannot be archived"}
	case string(start) != magic:
		return &Damage{0, "it does not begin as a binlog does"}
	}
	s.at = int64(len(magic))
	for {
		e, err := s.readHeader()
		if errors.Is(err, io.EOF) {
			return s.endFile()
		}
		if err == nil {
			err = s.readEvent(e)
		}
		if err != nil || s.headOnly && s.hasSet {
			return err
		}
	}
}

// endFile judges the end of the file between two events.
func (s *scanner) endFile() error {
	if s.open != nil || !s.hasSet {
		return ErrTruncated
	}
	return nil
}

// readHeader reads the next header; io.EOF at the end of the file.
func (s *scanner) readHeader() (e event, err error) {
	_, err = io.ReadFull(s.from, e.header[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return e, ErrTruncated
	}
	if err != nil {
		return e, err
	}
	e.kind, e.size = e.header[4], int64(binary.LittleEndian.Uint32(e.header[9:]))
	e.flags = binary.LittleEndian.Uint16(e.header[17:])
	least := int64(headerSize)
	if s.hasCRC {
		least += crcSize
	}
	if e.size < least {
		return e, &Damage{s.at, fmt.Sprintf("an event of %d bytes", e.size)}
	}
	return e, nil
}

// readEvent reads one event to its end.
func (s *scanner) readEvent(e event) error {
	if s.at == int64(len(magic)) && e.kind != eventFormat {
		return &Damage{s.at, fmt.Sprintf("the first event is of the kind %d, and describes no format", e.kind)}
	}
	var err error
	switch e.kind {
	case eventFormat:
		err = s.readFormat(e)
	case eventPreviousGTIDs:
		err = s.readPrevious(e)
	case eventGTID, eventTaggedGTID:
		err = s.readGTID(e)
	case eventAnonymous:
		err = &Unsupported{"the binlog has transactions without a GTID: they were written with another gtid_mode than ON"}
	default:
		if e.kind == eventRotate || e.kind == eventStop {
			s.summary.Closed = true
		}
		_, err = s.readBody(e, false, 0)
	}
	if err != nil {
		return err
	}
	s.at += e.size
	return s.endTransaction()
}

// endTransaction passes the transaction on that has ended with the last event.
func (s *scanner) endTransaction() error {
	switch {
	case s.open == nil:
		s.summary.Size = s.at
		return nil
	case s.at < s.open.Offset+s.open.Length:
		return nil
	case s.at > s.open.Offset+s.open.Length:
		return &Damage{s.open.Offset, fmt.Sprintf("transaction %s is longer than it says", s.open.GTID)}
	}
	t := *s.open
	s.open = nil
	if s.summary.First.IsZero() {
		s.summary.First = t.Committed
	}
	if s.summary.Earliest.IsZero() || t.Committed.Before(s.summary.Earliest) {
		s.summary.Earliest = t.Committed
	}
	if t.Committed.After(s.summary.Latest) {
		s.summary.Latest = t.Committed
	}
	s.summary.Last, s.summary.Size = t.Committed, s.at
	s.found.Add(t.GTID)
	return s.each(t)
}

// readBody reads what follows a header, and compares the checksum. What is kept is without
// it, and has at most so many bytes.
func (s *scanner) readBody(e event, keep bool, most int64) ([]byte, error) {
	length := e.size - headerSize
	if s.hasCRC {
		length -= crcSize
	}
	if keep && length > most {
		return nil, &Damage{s.at, fmt.Sprintf("an event of the kind %d with %d bytes", e.kind, length)}
	}
	s.sum.Reset()
	header := e.header
	if e.kind == eventFormat {
		header[17] &^= inUse // the server changes it in place
	}
	_, _ = s.sum.Write(header[:])
	var body []byte
	var err error
	if keep {
		body = make([]byte, length)
		_, err = io.ReadFull(s.from, body)
		_, _ = s.sum.Write(body)
	} else {
		_, err = io.CopyN(s.sum, s.from, length)
	}
	if err == nil && s.hasCRC {
		var wants [crcSize]byte
		_, err = io.ReadFull(s.from, wants[:])
		if err == nil && binary.LittleEndian.Uint32(wants[:]) != s.sum.Sum32() {
			return nil, &Damage{s.at, "the checksum of an event is another one"}
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrTruncated
	}
	return body, err
}

// Parts of the description of a format.
const (
	formatVersion   = 4
	versionLength   = 50
	formatFixed     = 2 + versionLength + 4 + 1
	checksumNone    = 0
	checksumCRC32   = 1
	formatHeaderAt  = formatFixed - 1
	checksumTrailer = 1 + crcSize
)

// readFormat reads the description of the format, which itself always has a checksum.
func (s *scanner) readFormat(e event) error {
	if s.at != int64(len(magic)) {
		return &Damage{s.at, "the format is described twice"}
	}
	s.hasCRC = true
	if e.size < headerSize+formatFixed+checksumTrailer {
		return &Damage{s.at, "the description of the format is short"}
	}
	body, err := s.readBody(e, true, largestBody)
	if err != nil {
		return err
	}
	if version := binary.LittleEndian.Uint16(body); version != formatVersion || body[formatHeaderAt] != headerSize {
		return &Unsupported{fmt.Sprintf("the binlog has the format %d, which this version of Holdfast does not know", version)}
	}
	s.summary.ServerVersion = cString(body[2 : 2+versionLength])
	switch algorithm := body[len(body)-1]; algorithm {
	case checksumNone:
		s.hasCRC = false
	case checksumCRC32:
	default:
		return &Unsupported{fmt.Sprintf("the binlog has checksums of the kind %d, which this version of Holdfast does not know", algorithm)}
	}
	return nil
}

// readPrevious reads the set of transactions from before the file.
func (s *scanner) readPrevious(e event) error {
	if s.hasSet {
		return &Damage{s.at, "the transactions before it are listed twice"}
	}
	body, err := s.readBody(e, true, largestSet)
	if err != nil {
		return err
	}
	if s.summary.Previous, err = decodeSet(body); err != nil {
		return &Damage{s.at, "the transactions before it: " + err.Error()}
	}
	s.hasSet = true
	return nil
}

// readGTID reads the event that begins a transaction.
func (s *scanner) readGTID(e event) error {
	switch {
	case !s.hasSet:
		return &Damage{s.at, "a transaction before the list of those that came before the file"}
	case s.open != nil:
		return &Damage{s.at, fmt.Sprintf("transaction %s ends early", s.open.GTID)}
	}
	body, err := s.readBody(e, true, largestBody)
	if err != nil {
		return err
	}
	decode := decodeGTID
	if e.kind == eventTaggedGTID {
		decode = decodeTaggedGTID
	}
	t, err := decode(body)
	if err != nil {
		return &Damage{s.at, "a GTID: " + err.Error()}
	}
	t.Offset = s.at
	if t.Length < e.size {
		return &Damage{s.at, fmt.Sprintf("transaction %s has %d bytes, and its first event %d", t.GTID, t.Length, e.size)}
	}
	s.open = &t
	return nil
}
