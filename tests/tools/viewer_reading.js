/* usage: node viewer_reading.js FILE...
   Reads each file as bench/viewer.html does, without a browser: a line for each, FILE and why it is
   refused, or `read`. */
'use strict';
const fs = require('fs');
const page = fs.readFileSync('bench/viewer.html', 'utf8');
const reading = page.slice(page.indexOf('/* ---- Reading ---- */'), page.indexOf('/* ---- Moments ---- */'));
const readText = new Function('chooseColours', 'finishMoment', reading + 'return readText;')(() => {}, () => {});
for (const file of process.argv.slice(2)) {
  let told = 'read';
  try { readText(fs.readFileSync(file, 'utf8'), file); } catch (e) { told = (e.constructor === Error ? '' : e.name + ' ') + e.message; }
  console.log(file + ': ' + told);
}
