// Package innodbpage checks the pages of InnoDB's files: each has the checksum that it
// says, and stands where it belongs. It knows the format of the files only, and reads a
// file as a stream.
package innodbpage

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
)

// Offsets in a page, and in the header of a tablespace, which is in its first page. See
// fil0types.h and fsp0types.h of MySQL.
const (
	offsetChecksum   = 0
	offsetNumber     = 4
	offsetLSN        = 16
	offsetType       = 24
	offsetFlushLSN   = 26
	offsetSpace      = 34
	offsetData       = 38
	offsetSpaceSize  = offsetData + 8
	offsetSpaceFlags = offsetData + 16
	headerBytes      = offsetSpaceFlags + 4
	// trailerBytes end a page: its checksum and the lower half of its LSN, again.
	trailerBytes = 8
)

// Types of pages that were changed when they were written to the file: their checksum is
// of what they were before.
const (
	typeCompressed             = 14
	typeEncrypted              = 15
	typeCompressedAndEncrypted = 16
	typeEncryptedSpatial       = 17
)

const (
	defaultPageSize = 16 << 10
	leastPageSize   = 1 << 10
	mostPageSize    = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Count is how many pages of a file were found to be what.
type Count struct {
	// Sound pages have the checksum that they say.
	Sound int64
	// Unused pages hold nothing but zeros.
	Unused int64
	// Unchecked pages are compressed or encrypted as a whole.
	Unchecked int64
}

// Add adds those of another file.
func (c *Count) Add(other Count) {
	c.Sound, c.Unused, c.Unchecked = c.Sound+other.Sound, c.Unused+other.Unused, c.Unchecked+other.Unchecked
}

// IsTablespace says whether a file of a data directory holds pages, by its path below the
// directory.
func IsTablespace(name string) bool {
	base := path.Base(name)
	switch path.Ext(base) {
	case ".ibd", ".ibu":
		return true
	}
	return !strings.Contains(name, "/") && (strings.HasPrefix(base, "ibdata") || strings.HasPrefix(base, "undo_"))
}

// Damage says which page of a file is not sound.
type Damage struct {
	Page   int64
	Reason string
}

func (d *Damage) Error() string { return fmt.Sprintf("page %d %s", d.Page, d.Reason) }

// file is a tablespace as its first page describes it.
type file struct {
	pageSize int
	// zipped says that tables are stored compressed, in pages of that size.
	zipped bool
	space  uint32
	// pages that it must have.
	pages int64
}

// CheckFile reads a file to its end. It fails with a *Damage at the first page that is not
// sound.
func CheckFile(from io.Reader) (Count, error) {
	reader := bufio.NewReaderSize(from, mostPageSize)
	header, err := reader.Peek(headerBytes)
	if errors.Is(err, io.EOF) {
		return Count{}, &Damage{0, "is not there: the file is too short"}
	}
	if err != nil {
		return Count{}, err
	}
	f, err := parseHeader(header)
	if err != nil {
		return Count{}, err
	}
	var count Count
	number, page := int64(0), make([]byte, f.pageSize)
	for ; ; number++ {
		switch _, err := io.ReadFull(reader, page); {
		case errors.Is(err, io.EOF):
			if number < f.pages {
				return count, &Damage{number, fmt.Sprintf("is not there: the file must have %d pages", f.pages)}
			}
			return count, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return count, &Damage{number, "ends too early"}
		case err != nil:
			return count, err
		}
		if err := f.checkPage(number, page, &count); err != nil {
			return count, err
		}
	}
}

// parseHeader reads what the first page says of all.
func parseHeader(header []byte) (file, error) {
	const zipShift, sizeShift, fourBits = 1, 6, 0xf
	flags := binary.BigEndian.Uint32(header[offsetSpaceFlags:])
	f := file{
		pageSize: defaultPageSize, space: binary.BigEndian.Uint32(header[offsetSpace:]),
		pages: int64(binary.BigEndian.Uint32(header[offsetSpaceSize:])),
	}
	if size := flags >> sizeShift & fourBits; size != 0 {
		f.pageSize = leastPageSize / 2 << size
	}
	if zip := flags >> zipShift & fourBits; zip != 0 {
		f.zipped, f.pageSize = true, leastPageSize/2<<zip
	}
	if f.pageSize < leastPageSize || f.pageSize > mostPageSize {
		return f, &Damage{0, fmt.Sprintf("says that pages have %d bytes", f.pageSize)}
	}
	if f.pages == 0 {
		return f, &Damage{0, "is no first page of a tablespace"}
	}
	return f, nil
}

func (f file) checkPage(number int64, page []byte, count *Count) error {
	if isZero(page) {
		count.Unused++
		return nil
	}
	if n := int64(binary.BigEndian.Uint32(page[offsetNumber:])); n != number {
		return &Damage{number, fmt.Sprintf("says that it is page %d", n)}
	}
	if space := binary.BigEndian.Uint32(page[offsetSpace:]); space != f.space {
		return &Damage{number, fmt.Sprintf("says that it is of tablespace %d, and the file is %d", space, f.space)}
	}
	switch binary.BigEndian.Uint16(page[offsetType:]) {
	case typeCompressed, typeEncrypted, typeCompressedAndEncrypted, typeEncryptedSpatial:
		count.Unchecked++
		return nil
	}
	says, sum := binary.BigEndian.Uint32(page[offsetChecksum:]), f.sumPage(page)
	if says != sum {
		return &Damage{number, fmt.Sprintf("has the checksum %08x, and says %08x", sum, says)}
	}
	if !f.zipped {
		if err := checkTrailer(number, page, sum); err != nil {
			return err
		}
	}
	count.Sound++
	return nil
}

// checkTrailer compares the end of a page with its beginning: a write that was cut off left
// them different.
func checkTrailer(number int64, page []byte, sum uint32) error {
	trailer := page[len(page)-trailerBytes:]
	if says := binary.BigEndian.Uint32(trailer); says != sum {
		return &Damage{number, fmt.Sprintf("has the checksum %08x, and says %08x at its end", sum, says)}
	}
	if !bytes.Equal(trailer[4:], page[offsetLSN+4:offsetLSN+8]) {
		return &Damage{number, "has another LSN at its end than at its beginning"}
	}
	return nil
}

// sumPage is the checksum that a page should say.
func (f file) sumPage(page []byte) uint32 {
	sum := func(from, to int) uint32 { return crc32.Checksum(page[from:to], castagnoli) }
	if f.zipped {
		return sum(offsetNumber, offsetLSN) ^ sum(offsetType, offsetFlushLSN) ^ sum(offsetSpace, len(page))
	}
	return sum(offsetNumber, offsetFlushLSN) ^ sum(offsetData, len(page)-trailerBytes)
}

var zeros [mostPageSize]byte

func isZero(page []byte) bool { return bytes.Equal(page, zeros[:len(page)]) }
