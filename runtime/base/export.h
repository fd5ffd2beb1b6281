// Marks the symbols that libkintsugi.so shows; everything else is hidden (the library is a guest in other processes).
#pragma once

#define KINTSUGI_EXPORT [[gnu::visibility("default")]]
