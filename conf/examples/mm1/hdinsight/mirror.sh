# kafka.tools.MirrorMaker of Azure's guide: one topic, four streams. It runs until Ctrl-C.
mirror mm1 --consumer.config consumer.properties --producer.config producer.properties --whitelist testtopic --num.streams 4
