package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The size of the drawing, in pixels.
const (
	charWidth  = 7.85
	lineHeight = 18
	margin     = 14
	fontSize   = 13
)

// pause is how long the last line stays before the recording begins again.
const pause = 4.0

// line of the recording, and the second in which its first character appeared.
type line struct {
	seconds float64
	text    string
	bold    bool
}

var escape = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// lines of a recording. A line is bold if it has bold text; other escapes are left out.
func (c cast) lines() []line {
	var all []line
	open := false
	for _, e := range c.events {
		for piece := range strings.Lines(e.text) {
			if !open {
				all = append(all, line{seconds: e.seconds})
			}
			all[len(all)-1].text += piece
			open = !strings.HasSuffix(piece, "\n")
		}
	}
	for i := range all {
		text := all[i].text
		all[i].bold = strings.Contains(text, "\x1b[1m")
		all[i].text = strings.TrimRight(escape.ReplaceAllString(text, ""), "\r\n")
	}
	return all
}

// size in characters and lines.
func size(lines []line) (width, height int) {
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.text))
	}
	return width, len(lines)
}

// draw draws a recording as an SVG, whose lines appear when they were printed, again and
// again. Readers who prefer reduced motion, and printers, get all of it at once.
func draw(c cast) string {
	lines := c.lines()
	width, height := size(lines)
	duration := pause
	if len(lines) > 0 {
		duration += lines[len(lines)-1].seconds
	}
	label := fmt.Sprintf("%s, recorded %s", c.title, c.began.UTC().Format("2006-01-02 15:04 UTC"))
	w, h := int(float64(width)*charWidth)+2*margin, height*lineHeight+2*margin

	var style, text strings.Builder
	for i, l := range lines {
		begin := 100 * l.seconds / duration
		fmt.Fprintf(&style, "@keyframes l%d{0%%,%.3f%%{opacity:0}%.3f%%,100%%{opacity:1}}#l%d{animation-name:l%d}\n", i, begin, begin+0.001, i, i)
		weight := ""
		if l.bold {
			weight = ` font-weight="bold"`
		}
		fmt.Fprintf(&text, `<text id="l%d" x="%d" y="%d"%s xml:space="preserve">%s</text>`+"\n", i, margin, margin+(i+1)*lineHeight-5, weight, html.EscapeString(l.text))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text{fill:#e6edf3;font:%dpx ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;animation:%.2fs step-end infinite}
%s@media (prefers-reduced-motion:reduce),print{text{animation:none}}
</style>
<rect width="100%%" height="100%%" rx="6" fill="#0d1117"/>
%s</svg>
`, w, h, w, h, html.EscapeString(label), fontSize, duration, style.String(), text.String())
}
