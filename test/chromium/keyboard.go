package chromium

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"time"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/domdebugger"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Kinds of controls, by what a person does with them.
const (
	Link     = "link"
	Button   = "button"
	Select   = "select"
	Box      = "box"      // a checkbox, or a radio button
	Text     = "text"     // a field to write in
	Scroller = "scroller" // shows a part of what it holds
	Region   = "region"   // gets the focus, and has nothing to scroll at this width
)

// Control is an element that a person acts on, or moves in. Its position in the list of a
// page's controls is its position in the page's variable controls.
type Control struct {
	Kind, Name, Href string
}

// listControls finds what is there for a person to act on: by its element, its role, because
// it takes the focus, or because it scrolls.
const listControls = `(() => {
	const native = "a[href], area[href], button, input, select, textarea, summary, iframe, audio[controls], video[controls], [contenteditable]";
	const roles = ["button", "checkbox", "combobox", "link", "menuitem", "option", "radio", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem"];
	const acts = (e) => roles.includes(e.getAttribute("role"));
	const scrolls = (e) => {
		const style = getComputedStyle(e), may = (s) => s === "auto" || s === "scroll";
		return may(style.overflowX) && e.scrollWidth > e.clientWidth || may(style.overflowY) && e.scrollHeight > e.clientHeight;
	};
	const kind = (e) => e.matches("a[href], area[href], [role=link]") ? "link" : e.matches("select") ? "select"
		: e.matches("input[type=checkbox], input[type=radio]") ? "box" : e.matches("button, summary, input[type=button], input[type=submit], input[type=reset]") ? "button"
		: e.matches("input, textarea, [contenteditable]") ? "text" : acts(e) ? "button" : scrolls(e) ? "scroller" : "region";
	window.controls = [...document.body.querySelectorAll("*")].filter((e) => e.getClientRects().length && getComputedStyle(e).visibility === "visible"
		&& !e.disabled && !e.closest("[inert]") && (e.matches(native) || acts(e) || e.tabIndex >= 0 || scrolls(e)));
	return controls.map((e) => ({kind: kind(e), href: e.href || "",
		name: kind(e) + " " + JSON.stringify((e.getAttribute("aria-label") || e.innerText || e.type || e.tagName).trim().slice(0, 60))}));
})()`

// Controls lists what the page has for a person to act on, in its order.
func (b *Tab) Controls() (controls []Control) {
	b.t.Helper()
	b.Evaluate(listControls, &controls)
	return controls
}

// FindKeyboardFaults walks the page with the keyboard alone, and returns its controls and
// what is wrong with them. Each is reached by Tab on the way from the beginning of the page to
// its end, and shows that it has the focus. Links are followed by Enter, buttons are pressed by Enter and by Space,
// choices change by the arrow keys, fields take what is typed, and regions scroll. Nothing
// but a control has a listener for the mouse. Links and buttons are kept from acting, so the
// page is the same afterwards.
func (b *Tab) FindKeyboardFaults() (controls []Control, faults []string) {
	b.t.Helper()
	controls = b.Controls()
	faults = append(b.findMouseOnly(), b.walkByTab(controls)...)
	faults = append(faults, b.pressKeys(controls)...)
	// Fields and choices may have the page show other elements: they come last.
	for _, kinds := range [][]string{{Scroller}, {Select, Text, Box}} {
		for i, c := range controls {
			if slices.Contains(kinds, c.Kind) && !b.changeByKey(i, c) {
				faults = append(faults, c.Name+" does not change by the keyboard")
			}
		}
	}
	return controls, faults
}

// changeByKey says whether a control changes by the keys that are for it. It is changed back,
// but for how far it scrolls.
func (b *Tab) changeByKey(i int, c Control) bool {
	b.t.Helper()
	changes := func(property, key, back string) bool {
		read := fmt.Sprintf("String(controls[%d].%s)", i, property)
		var before string
		b.Evaluate(fmt.Sprintf("controls[%d].focus(); %s", i, read), &before)
		b.Run(chromedp.KeyEvent(key))
		after := b.pollChange(read, before)
		if back != "" {
			b.Run(chromedp.KeyEvent(back))
		}
		return before != after
	}
	switch c.Kind {
	case Select:
		if b.Holds(fmt.Sprintf("controls[%[1]d].selectedIndex === controls[%[1]d].length - 1", i)) {
			return changes("value", kb.ArrowUp, kb.ArrowDown)
		}
		return changes("value", kb.ArrowDown, kb.ArrowUp)
	case Text:
		return changes("value", "z", kb.Backspace)
	case Box:
		return changes("checked", " ", " ")
	default:
		return changes("scrollLeft", kb.ArrowRight, "") || changes("scrollTop", kb.ArrowDown, "")
	}
}

// pollChange waits a second for an expression to have another value: scrolling is animated.
func (b *Tab) pollChange(expression, before string) (now string) {
	b.t.Helper()
	for range 20 {
		if b.Evaluate(expression, &now); now != before {
			return now
		}
		time.Sleep(50 * time.Millisecond)
	}
	return now
}

// mouseEvents are those that a person without a mouse does not cause, but for a click on a
// control.
var mouseEvents = []string{"click", "dblclick", "mousedown", "mouseup", "pointerdown", "pointerup", "touchstart", "touchend"}

// findMouseOnly finds elements that listen to the mouse, get its events, and are in no control.
func (b *Tab) findMouseOnly() (faults []string) {
	b.t.Helper()
	b.Run(chromedp.ActionFunc(func(ctx context.Context) error {
		body, _, err := cdpruntime.Evaluate("document.body").Do(ctx)
		if err != nil {
			return err
		}
		listeners, err := domdebugger.GetEventListeners(body.ObjectID).WithDepth(-1).Do(ctx)
		if err != nil {
			return err
		}
		for _, l := range listeners {
			if !slices.Contains(mouseEvents, l.Type) {
				continue
			}
			element, err := dom.ResolveNode().WithBackendNodeID(l.BackendNodeID).Do(ctx)
			if err != nil {
				return err
			}
			outside, _, err := cdpruntime.CallFunctionOn(`function() { return controls.some((c) => c.contains(this)) || getComputedStyle(this).pointerEvents === "none" ? "" : this.cloneNode().outerHTML; }`).
				WithObjectID(element.ObjectID).WithReturnByValue(true).Do(ctx)
			if err != nil {
				return err
			}
			var text string
			if err := json.Unmarshal(outside.Value, &text); err != nil {
				return err
			}
			if text != "" {
				faults = append(faults, fmt.Sprintf("%s listens to %s, and the keyboard does not reach it", text, l.Type))
			}
		}
		return nil
	}))
	return faults
}

// box of an element in the window, in pixels.
type box struct{ Left, Top, Right, Bottom float64 }

// walkByTab presses the tabulator from the beginning of the page to its end.
func (b *Tab) walkByTab(controls []Control) (faults []string) {
	b.t.Helper()
	// What had the focus when it was removed is where the tabulator goes on.
	b.Evaluate(`(() => { const s = document.createElement("span"); s.tabIndex = -1; document.body.prepend(s); s.focus(); s.remove(); })()`, nil)
	var reached []int
	for range 2*len(controls) + 2 {
		b.Run(chromedp.KeyEvent(kb.Tab))
		var at struct {
			Index int
			Name  string
			Box   box
		}
		b.Evaluate(`(() => { const e = document.activeElement, r = e.getBoundingClientRect();
			return {index: e === document.body ? -2 : controls.indexOf(e), name: e.cloneNode().outerHTML, box: {left: r.left, top: r.top, right: r.right, bottom: r.bottom}}; })()`, &at)
		if at.Index == -2 || slices.Contains(reached, at.Index) {
			break // the end of the page, or its beginning again
		}
		if at.Index < 0 {
			return append(faults, at.Name+" takes the focus and came after the page was read")
		}
		reached = append(reached, at.Index)
		if !b.showsFocus(at.Box) {
			faults = append(faults, controls[at.Index].Name+" does not show that it has the focus")
		}
	}
	for i, c := range controls {
		if !slices.Contains(reached, i) {
			faults = append(faults, c.Name+" is not reached by the tabulator")
		}
	}
	return faults
}

// pressKeys presses Enter on links, and Enter and Space on buttons, and keeps what would
// follow from happening.
func (b *Tab) pressKeys(controls []Control) (faults []string) {
	b.t.Helper()
	b.Evaluate(`(() => {
		window.clicked = []; window.letClicksThrough = new AbortController();
		addEventListener("click", (e) => { e.preventDefault(); e.stopImmediatePropagation(); if (e.isTrusted) clicked.push(controls.indexOf(e.target)); },
			{capture: true, signal: letClicksThrough.signal});
	})()`, nil)
	keys := map[string]map[string]string{Link: {"Enter": kb.Enter}, Button: {"Enter": kb.Enter, "Space": " "}}
	for i, c := range controls {
		for name, key := range keys[c.Kind] {
			b.Evaluate(fmt.Sprintf("clicked.length = 0; controls[%d].focus()", i), nil)
			b.Run(chromedp.KeyEvent(key))
			if !b.Holds(fmt.Sprintf("clicked.length === 1 && clicked[0] === %d", i)) {
				faults = append(faults, c.Name+" does not act on "+name)
			}
		}
	}
	b.Evaluate("letClicksThrough.abort()", nil)
	return faults
}

// A ring of these pixels around an element is where it shows the focus.
const ringOutside, ringInside = 6, 3

// leastContrast is that of the Web Content Accessibility Guidelines, between what is shown
// with the focus and without it.
const leastContrast = 3

// showsFocus compares the window with the focus to the same without it: at least a line of
// a pixel around the element differs clearly, as far as the window shows it. The focus is
// lost, and the tabulator goes on from where it was.
func (b *Tab) showsFocus(around box) bool {
	b.t.Helper()
	with := b.capture()
	b.Evaluate("document.activeElement.blur()", nil)
	without := b.capture()
	window := with.Bounds()
	if window != without.Bounds() {
		return false
	}
	differs := 0
	for y := max(0, int(around.Top)-ringOutside); y < min(window.Dy(), int(around.Bottom)+ringOutside); y++ {
		for x := max(0, int(around.Left)-ringOutside); x < min(window.Dx(), int(around.Right)+ringOutside); x++ {
			inside := x > int(around.Left)+ringInside && x < int(around.Right)-ringInside && y > int(around.Top)+ringInside && y < int(around.Bottom)-ringInside
			if !inside && contrast(with.At(x, y), without.At(x, y)) >= leastContrast {
				differs++
			}
		}
	}
	least := around.visibleOutline(float64(window.Dx()), float64(window.Dy()))
	return least > 0 && float64(differs) >= least
}

// visibleOutline is how long the line around a box is, as far as the window shows it.
func (r box) visibleOutline(width, height float64) (length float64) {
	across := max(0, min(width, r.Right)-max(0, r.Left))
	down := max(0, min(height, r.Bottom)-max(0, r.Top))
	for _, y := range []float64{r.Top, r.Bottom} {
		if y >= ringOutside && y <= height-ringOutside {
			length += across
		}
	}
	for _, x := range []float64{r.Left, r.Right} {
		if x >= ringOutside && x <= width-ringOutside {
			length += down
		}
	}
	return length
}

// capture is a picture of the window.
func (b *Tab) capture() image.Image {
	b.t.Helper()
	var data []byte
	b.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		data, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(true).Do(ctx)
		return err
	}))
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	return picture
}

// contrast of two colours, as the Web Content Accessibility Guidelines define it: 1 to 21.
func contrast(one, other color.Color) float64 {
	if one == other {
		return 1
	}
	a, b := luminance(one), luminance(other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

func luminance(c color.Color) float64 {
	linear := func(v uint32) float64 {
		f := float64(v) / math.MaxUint16
		if f <= 0.04045 {
			return f / 12.92
		}
		return math.Pow((f+0.055)/1.055, 2.4)
	}
	r, g, b, _ := c.RGBA()
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}
